"""Views by name: what they consist of, that seeds decide them, and that they compile without a break."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from normatch.augment import KINDS, AugmentConfig, ImageParams, Params, VectorParams, Views
from normatch.augment.cutout import GREY, apply_cutout
from normatch.augment.randaugment import apply_randaugment
from normatch.augment.vectors import apply_mask, apply_mix, apply_noise
from normatch.augment.weak import apply_weak
from normatch.errors import UserError

SHAPES: list[tuple[int, ...]] = [(1, 8, 8), (3, 32, 32), (3, 33, 20), (1, 96, 96), (64,)]


def batch(shape: tuple[int, ...], n: int = 12) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    if len(shape) == 1:
        return torch.randn((n, *shape), generator=generator)
    return torch.randint(0, 256, (n, *shape), dtype=torch.uint8, generator=generator)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_seed_decides_the_view(shape: tuple[int, ...], kind: str) -> None:
    views, images = Views(shape), batch(shape)
    before = images.clone()
    first, again, other = (views(kind, images, seeded(seed)) for seed in (0, 0, 1))
    assert first.shape == images.shape
    assert first.dtype == images.dtype
    assert first.device == images.device
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (kind == "none")
    assert torch.equal(images, before)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_views_of_any_size_of_batch(shape: tuple[int, ...]) -> None:
    for n in (0, 1, 5):
        assert Views(shape)("strong", batch(shape, n), seeded(0)).shape == (n, *shape)


def test_strong_view_is_weak_then_randaugment_then_cutout() -> None:
    views, images = Views((3, 32, 32)), batch((3, 32, 32))
    params = views.draw("strong", len(images), seeded(0), "cpu")
    assert isinstance(params, ImageParams)
    assert params.weak is not None
    assert params.randaugment is not None
    assert params.cutout is not None
    expected = apply_cutout(apply_randaugment(apply_weak(images, params.weak), params.randaugment), params.cutout)
    assert torch.equal(views.apply(images, params), expected)


def test_weak_view_of_an_image_has_no_other_stage() -> None:
    params = Views((3, 32, 32)).draw("weak", 4, seeded(0), "cpu")
    assert isinstance(params, ImageParams)
    assert params.weak is not None
    assert params.randaugment is None
    assert params.cutout is None


@pytest.mark.parametrize(
    ("config", "pad", "hole"),
    [
        (AugmentConfig(), (4, 2), (16, 10)),
        (AugmentConfig(pad=3, cutout=0.25), (3, 3), (8, 5)),
    ],
)
def test_sides_of_an_image_count_for_themselves(
    config: AugmentConfig, pad: tuple[int, int], hole: tuple[int, int]
) -> None:
    params = Views((3, 33, 20), config).draw("strong", 4000, seeded(0), "cpu")
    assert isinstance(params, ImageParams)
    assert params.weak is not None
    assert params.cutout is not None
    assert (int(params.weak.top.max()), int(params.weak.left.max())) == pad
    assert (params.cutout.bottom - params.cutout.top).unique().tolist() == [hole[0]]
    assert (params.cutout.right - params.cutout.left).unique().tolist() == [hole[1]]


def test_stages_can_be_switched_off() -> None:
    config = AugmentConfig(flip=False, pad=0, ops=0, cutout=0)
    images = batch((3, 32, 32))
    assert torch.equal(Views((3, 32, 32), config)("strong", images, seeded(0)), images)


def test_cutout_always_leaves_grey() -> None:
    views = Views((1, 16, 16), AugmentConfig(ops=0))
    strong = views("strong", torch.zeros(200, 1, 16, 16, dtype=torch.uint8), seeded(0))
    assert (strong == GREY).any(dim=(1, 2, 3)).all()


def test_strong_view_of_a_vector_is_noise_then_mix_then_mask() -> None:
    views, vectors = Views((8,), AugmentConfig(mix=0.5, mask=0.25)), batch((8,))
    params = views.draw("strong", len(vectors), seeded(0), "cpu")
    assert isinstance(params, VectorParams)
    assert params.noise is not None
    assert params.mix is not None
    assert params.mask is not None
    expected = apply_mask(apply_mix(apply_noise(vectors, params.noise), params.mix), params.mask)
    assert torch.equal(views.apply(vectors, params), expected)
    weak = views.draw("weak", len(vectors), seeded(0), "cpu")
    assert isinstance(weak, VectorParams)
    assert weak.mix is None
    assert weak.mask is None


def test_vector_views() -> None:
    centre, scale = torch.full((8,), 3.0), torch.full((8,), 2.0)
    views = Views((8,), AugmentConfig(noise=0.5, mask=0.25), centre=centre, scale=scale)
    vectors = torch.zeros(5000, 8)
    weak, strong = views("weak", vectors, seeded(0)), views("strong", vectors, seeded(0))
    assert float(weak.std()) == pytest.approx(1.0, rel=0.05)
    assert ((strong == 3.0).sum(1) == 2).all()
    assert torch.equal(strong[strong != 3.0], weak[strong != 3.0])


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method.:DeprecationWarning")  # torch 2.11's, when it is imported
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (20,)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_apply_compiles_without_a_break(shape: tuple[int, ...], kind: str) -> None:
    views, images = Views(shape, AugmentConfig(mix=0.3)), batch(shape)
    params = views.draw(kind, len(images), seeded(0), "cpu")
    torch._dynamo.reset()
    compiled: Any = torch.compile(views.apply, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(images, params), views.apply(images, params))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("default")  # torch's own compiler uses what torch deprecates
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (20,)], ids=str)
def test_a_captured_graph_makes_the_same_views(shape: tuple[int, ...]) -> None:
    views, images = Views(shape), batch(shape, 448)
    generator = torch.Generator("cuda").manual_seed(0)
    on_device = images.cuda()
    apply: Any = torch.compile(views.apply, fullgraph=True)

    def step() -> tuple[Params, Tensor]:
        params = views.draw("strong", 448, generator, "cuda")
        return params, apply(on_device, params)

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        params, view = step()
    previous = torch.empty_like(images)
    for seed in (1, 2):
        generator.manual_seed(seed)
        graph.replay()
        assert not torch.equal(view.cpu(), previous)
        previous = view.cpu()
        assert torch.equal(previous, views.apply(images, tree_map_only(Tensor, Tensor.cpu, params)))


def test_unknown_kind_names_the_known_ones() -> None:
    views = Views((1, 8, 8))
    with pytest.raises(UserError, match=r"'medium'.*none, weak, strong"):
        views.draw("medium", 1, seeded(0), "cpu")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pad", -1),
        ("ops", -1),
        ("max_strength", 1),
        ("max_strength", 11),
        ("cutout", 1.5),
        ("cutout", float("nan")),
        ("noise", -0.1),
        ("noise", float("inf")),
        ("mix", -0.1),
        ("mix", 0.6),
        ("mask", -0.1),
        ("mask", 1.1),
    ],
)
def test_config_out_of_range_names_field_value_and_range(field: str, value: Any) -> None:
    config = AugmentConfig(**{field: value})
    for check in (config.check, lambda: Views((1, 8, 8), config)):
        with pytest.raises(UserError, match=rf"{field} is {value}: allowed is "):
            check()


@pytest.mark.parametrize(
    ("images", "given"),
    [
        (False, {"pad": 2}),
        (False, {"ops": 3}),
        (False, {"max_strength": 5}),
        (False, {"cutout": 0.1}),
        (True, {"noise": 0.3}),
        (True, {"mix": 0.2}),
        (True, {"mask": 0.1}),
    ],
)
def test_what_has_no_effect_on_the_items_is_named(images: bool, given: dict[str, Any]) -> None:
    (field, value), config = *given.items(), AugmentConfig(**given)
    with pytest.raises(UserError, match=f"augment.{field} is {value}, which is for .*: leave it out"):
        config.must_suit(images=images)
    config.must_suit(images=not images)


def test_defaults_and_what_is_off_suit_all_items() -> None:
    for images in (True, False):
        AugmentConfig().must_suit(images=images)
        AugmentConfig(flip=False, pad=0, ops=0, cutout=0, noise=0, mix=0, mask=0).must_suit(images=images)


@pytest.mark.parametrize("given", [{"ops": 3}, {"max_strength": 5}, {"cutout": 0.1}, {"mix": 0.2}, {"mask": 0.1}])
def test_what_has_no_effect_on_the_views_is_named(given: dict[str, Any]) -> None:
    (field, value), config = *given.items(), AugmentConfig(**given)
    message = f"augment.{field} is {value}, which is for strong views, but method 'plain' has none: leave it out"
    with pytest.raises(UserError, match=message):
        config.must_show({"weak", "none"}, "plain")
    config.must_show({"weak", "strong"}, "plain")


def test_a_weak_view_needs_no_strong_augmentation() -> None:
    for config in (AugmentConfig(flip=False, pad=1, noise=0.3), AugmentConfig(ops=0, cutout=0, mix=0, mask=0)):
        config.must_show({"weak"}, "plain")


def test_shapes_without_views_are_refused() -> None:
    with pytest.raises(UserError, match="2 channels"):
        Views((2, 8, 8))
    with pytest.raises(UserError, match=r"\(8, 8\)"):
        Views((8, 8))
    with pytest.raises(UserError, match=r"pad is 8: allowed is less than the image's side, 8"):
        Views((1, 9, 8), AugmentConfig(pad=8))
    with pytest.raises(UserError, match=r"scale has shape \(3,\)"):
        Views((4,), scale=torch.ones(3))


def test_wrong_batches_are_refused() -> None:
    views = Views((1, 8, 8))
    with pytest.raises(ValueError, match="samples"):
        views("weak", batch((1, 9, 8)), seeded(0))
    with pytest.raises(TypeError, match="uint8"):
        views("weak", torch.zeros(2, 1, 8, 8), seeded(0))
    assert isinstance(Views((4,)).draw("none", 1, seeded(0), "cpu"), VectorParams)
