"""Views by name: what they consist of, that seeds decide them, and that they compile without a break."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from normatch.augment import VIEWS, AugmentConfig, Numbers, Views, check_view
from normatch.augment.cutout import cut_out
from normatch.augment.randaugment import build_programs, randaugment
from normatch.augment.vectors import VectorNumbers, vector_view
from normatch.augment.views import ImageNumbers
from normatch.augment.weak import weak_view
from normatch.errors import UserError

SHAPES: list[tuple[int, ...]] = [(1, 8, 8), (3, 33, 20), (64,)]


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
    assert torch.equal(first, other) == (view == "none")
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
    assert isinstance(numbers, ImageNumbers)
    assert numbers.weak is not None
    assert numbers.randaugment is not None
    assert numbers.cutout is not None
    assert numbers.randaugment.shape == (4, len(images), 2)
    weak = weak_view(images, numbers.weak, pad, flip=True)
    augmented = randaugment(weak, numbers.randaugment, strength, build_programs(*shape[1:], "cpu"))
    assert torch.equal(views.make(images, numbers), cut_out(augmented, numbers.cutout, hole))
    assert torch.equal(views.make(images, ImageNumbers(numbers.weak)), weak)
    assert views.numbers("weak", len(images), seeded(0), "cpu")[1:] == (None, None, None)


def test_a_strong_vector_is_noise_then_mix_then_mask() -> None:
    centre, scale = torch.full((8,), 3.0), torch.full((8,), 2.0)
    views = Views((8,), AugmentConfig(noise=0.5, mix=0.5, mask=0.25), centre=centre, scale=scale)
    vectors = torch.zeros(5000, 8)
    numbers = views.numbers("strong", len(vectors), seeded(0), "cpu")
    assert isinstance(numbers, VectorNumbers)
    assert numbers.noise is not None
    assert numbers.mix is not None
    assert numbers.mask is not None
    assert float(numbers.noise.std()) == pytest.approx(1.0, rel=0.05)
    strong = views.make(vectors, numbers)
    mixed = vector_view(vectors + numbers.noise, VectorNumbers(mix=numbers.mix))
    assert torch.equal(strong, torch.where(numbers.mask[0], centre, mixed))
    assert (numbers.mask[0].sum(1) == 2).all()
    weak = views.numbers("weak", len(vectors), seeded(0), "cpu")
    assert weak[1:] == (None, None)
    assert torch.equal(views.make(vectors, weak), numbers.noise)


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
    with pytest.raises(UserError, match="unknown view 'medium': choose from none, weak, strong"):
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
