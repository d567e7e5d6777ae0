"""Views by name: what they consist of, that seeds decide them, and that they compile without a break."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils._pytree import tree_map_only

from normatch.augment import VIEWS, AugmentConfig, Numbers, Views, check_view
from normatch.augment.crop import ResizedCrop
from normatch.augment.cutout import cut_out
from normatch.augment.randaugment import apply_choices, build_programs, choose
from normatch.augment.rotate import quarter_turns
from normatch.augment.weak import weak_view
from normatch.errors import UserError

SHAPES: list[tuple[int, ...]] = [(1, 8, 8), (3, 20, 20), (64,)]


def batch(shape: tuple[int, ...], n: int = 12) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    if len(shape) == 1:
        return torch.randn((n, *shape), generator=generator)
    return torch.randint(0, 256, (n, *shape), dtype=torch.uint8, generator=generator)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_seed_decides_the_view(shape: tuple[int, ...], view: str) -> None:
    views, samples = Views(shape), batch(shape)
    before = samples.clone()
    first, again, other = (views(view, samples, seeded(seed)) for seed in (0, 0, 1))
    assert (first.shape, first.dtype) == (samples.shape, samples.dtype)
    assert torch.equal(first, again)
    silent = {"none"} if len(shape) == 3 else {"none", "rotated", "crop"}
    assert torch.equal(first, other) == (view in silent)
    assert torch.equal(samples, before)
    assert views(view, samples[:0], seeded(0)).shape == (0, *shape)


@pytest.mark.parametrize(
    ("shape", "config", "pad", "hole", "strength"),
    [
        ((3, 32, 32), AugmentConfig(), (4, 4), (16, 16), 10),
        ((1, 28, 28), AugmentConfig(), (3, 3), (14, 14), 10),
        ((3, 33, 20), AugmentConfig(pad=3, cutout=0.25, max_strength=4), (3, 3), (8, 5), 4),
    ],
    ids=str,
)
def test_a_strong_image_is_a_weak_one_then_randaugment_then_cutout(
    shape: tuple[int, int, int], config: AugmentConfig, pad: tuple[int, int], hole: tuple[int, int], strength: int
) -> None:
    """The defaults are the paper's: two ops at 1 to 9 tenths; borders of an eighth and holes of half, rounded down."""
    views, images = Views(shape, config), batch(shape)
    numbers = views.numbers("strong", len(images), seeded(0), "cpu")
    assert list(numbers) == ["weak", "randaugment", "cutout"]
    uniform, _ = numbers["randaugment"]
    assert uniform.shape == (4, len(images), 2)
    weak = weak_view(images, numbers["weak"][0], pad, flip=True)
    augmented = apply_choices(weak, choose(uniform, strength), build_programs(*shape[1:], "cpu"))
    assert torch.equal(views.make(images, numbers), cut_out(augmented, numbers["cutout"][0], hole))
    assert torch.equal(views.make(images, {"weak": numbers["weak"]}), weak)
    assert list(views.numbers("weak", len(images), seeded(0), "cpu")) == ["weak"]


def test_what_other_views_of_images_are_made_of() -> None:
    views = Views((3, 32, 32))
    made = {view: views.numbers(view, 1000, seeded(0), "cpu") for view in ("none", "rotated", "crop", "mixed")}
    assert {view: list(numbers) for view, numbers in made.items()} == {
        "none": [],
        "rotated": ["weak", "randaugment", "cutout", "rotate"],
        "crop": ["weak", "crop", "randaugment"],
        "mixed": ["weak", "mix"],
    }
    assert 0.45 < made["mixed"]["mix"][1].max() <= 0.5, "the larger share is the image's own"


@pytest.mark.parametrize(("view", "first", "last"), [("none", 0, 0), ("weak", 1, 3), ("strong", 4, 6)])
def test_a_view_picks_from_copies_of_its_own(view: str, first: int, last: int) -> None:
    """Of the plain features, those of weak views and those of strong ones."""
    views = Views((4,), AugmentConfig(noise=0, mask=0), copies=3)
    copies = torch.arange(7.0)[None, :, None].expand(500, 7, 4)
    assert views(view, copies, seeded(0)).unique().tolist() == list(range(first, last + 1))


def test_a_strong_vector_is_noise_then_mix_then_mask() -> None:
    centre, scale = torch.full((8,), 3.0), torch.full((8,), 2.0)
    views = Views((8,), AugmentConfig(noise=0.5, mix=0.5, mask=0.25), centre=centre, scale=scale)
    vectors = torch.zeros(5000, 8)
    numbers = views.numbers("strong", len(vectors), seeded(0), "cpu")
    assert list(numbers) == ["noise", "mix-vectors", "mask"]
    (noise,), (partner, share), (masked,) = numbers.values()
    assert float(noise.std()) == pytest.approx(1.0, rel=0.05)
    mixed = torch.lerp(noise, noise[partner], share)
    assert torch.equal(views.make(vectors, numbers), torch.where(masked, centre, mixed))
    assert (masked.sum(1) == 2).all()
    weak = views.numbers("weak", len(vectors), seeded(0), "cpu")
    assert list(weak) == ["noise"]
    assert torch.equal(views.make(vectors, weak), noise)


def test_rotated_images_turn_by_quarters_as_numpy_turns_them() -> None:
    views, images = Views((3, 8, 8), AugmentConfig(flip=False, pad=0, ops=0, cutout=0)), batch((3, 8, 8), 6)
    rotated = views("rotated", images, seeded(0))
    turns = quarter_turns(6, images.device).tolist()
    assert turns == [0, 1, 2, 3, 0, 1]
    for image, view, quarters in zip(images.numpy(), rotated.numpy(), turns, strict=True):
        np.testing.assert_array_equal(view, np.rot90(image, quarters, (1, 2)))
    with pytest.raises(UserError, match="8×9 pixels cannot be rotated: set --image-size"):
        Views((1, 8, 9))("rotated", batch((1, 8, 9)), seeded(0))


def test_a_resized_crop_is_pillow_s() -> None:
    """Up to rounding, away from the borders, which Pillow clamps and the crop reflects."""
    image = torch.arange(32, dtype=torch.uint8).mul(8).expand(1, 1, 32, 32).contiguous()
    crop = ResizedCrop()
    uniform = torch.tensor([[0.3], [0.25], [0.75]])
    side = (0.2 + 0.8 * 0.3) ** 0.5 * 32
    top, left = ((32 - side) * u for u in (0.25, 0.75))
    expected = Image.fromarray(image[0, 0].numpy()).resize(
        (32, 32), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side)
    )
    got = crop.apply(image, uniform)[0, 0].float()
    assert (got - torch.from_numpy(np.asarray(expected).copy()).float()).abs()[:, 1:-1].max() <= 2


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method.:DeprecationWarning")  # torch 2.11's, when it is imported
@pytest.mark.parametrize("shape", [(3, 33, 20), (20,)], ids=str)
def test_compiles_without_a_break(shape: tuple[int, ...]) -> None:
    views, samples = Views(shape, AugmentConfig(mix=0.3)), batch(shape)
    numbers = views.numbers("strong", len(samples), seeded(0), "cpu")
    torch._dynamo.reset()
    compiled: Any = torch.compile(views.make, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(samples, numbers), views.make(samples, numbers))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("default")  # torch's own compiler uses what torch deprecates
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (20,)], ids=str)
def test_a_captured_graph_makes_the_same_views(shape: tuple[int, ...]) -> None:
    centre, scale = torch.zeros(shape, device="cuda"), torch.ones(shape, device="cuda")
    views, samples = Views(shape, centre=centre, scale=scale), batch(shape, 448)
    generator = torch.Generator("cuda").manual_seed(0)
    on_device = samples.cuda()
    make: Any = torch.compile(views.make, fullgraph=True)

    def step() -> tuple[Numbers, Tensor]:
        numbers = views.numbers("strong", 448, generator, "cuda")
        return numbers, make(on_device, numbers)

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        numbers, view = step()
    previous = torch.empty_like(samples)
    for seed in (1, 2):
        generator.manual_seed(seed)
        graph.replay()
        assert not torch.equal(view.cpu(), previous)
        previous = view.cpu()
        assert torch.equal(previous, views.make(samples, tree_map_only(Tensor, Tensor.cpu, numbers)))


@pytest.mark.parametrize(
    ("field", "value"),
    [("pad", -1), ("ops", -1), ("max_strength", 11), ("cutout", float("nan")), ("noise", float("inf")), ("mix", 0.6)],
)
def test_config_out_of_range_names_field_value_and_range(field: str, value: Any) -> None:
    with pytest.raises(UserError, match=rf"{field} is {value}: allowed is "):
        AugmentConfig(**{field: value}).check()


def test_impossible_views_are_refused() -> None:
    with pytest.raises(UserError, match="unknown view 'medium': choose from none, weak, strong, rotated, crop, mixed"):
        check_view("medium")
    with pytest.raises(UserError, match=r"pad is 8: allowed is less than the image's side, 8"):
        Views((1, 9, 8), AugmentConfig(pad=8))


@pytest.mark.parametrize(
    ("field", "value"), [("pad", 2), ("ops", 3), ("max_strength", 5), ("noise", 0.3), ("mix", 0.2)]
)
def test_what_has_no_effect_on_the_samples_is_named(field: str, value: float) -> None:
    config, vectors = AugmentConfig(**{field: value}), field in ("noise", "mix")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=f"augment.{field} is {value}, which is for .*: leave it out"):
        config.must_suit(images=vectors)
    config.must_suit(images=not vectors)
    if field in ("ops", "cutout", "mix"):
        message = f"augment.{field} is {value}, which is for strong views, but method 'plain' has none: leave it out"
        with pytest.raises(UserError, match=message):
            config.must_show({"weak", "none"}, "plain")
    config.must_show({"weak", "strong"}, "plain")


def test_defaults_and_what_is_off_are_never_refused() -> None:
    off = AugmentConfig(flip=False, pad=0, ops=0, cutout=0, noise=0, mix=0, mask=0)
    for config in (AugmentConfig(), off):
        for images in (True, False):
            config.must_suit(images=images)
        config.must_show({"weak"}, "plain")
    samples = batch((3, 32, 32))
    assert torch.equal(Views((3, 32, 32), off)("strong", samples, seeded(0)), samples)
