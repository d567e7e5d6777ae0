"""The augmentations of a run: which, how strong, and whether its samples and views have them at all."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from normatch.augment.randaugment import MAX_STRENGTH
from normatch.errors import UserError

__all__ = ["AugmentConfig"]

OFF: dict[str, dict[str, float | None]] = {
    "images": {"flip": False, "pad": 0, "ops": 0, "max_strength": None, "cutout": 0},
    "feature vectors": {"noise": 0, "mix": 0, "mask": 0},
}
"""The augmentations of images and of vectors, with the value that turns each off; None if there is no such value."""

STRONG_ALONE = ("ops", "max_strength", "cutout", "mix", "mask")
"""The augmentations that weak views do not have."""

WITHOUT_STRONG = {"none", "weak", "mixed"}
"""The views without any of these."""


@dataclass(frozen=True)
class AugmentConfig:
    """The augmentations. The defaults are FixMatch's."""

    flip: bool = True
    """Mirror images with probability ½. Switch it off if left and right matter, as in digits."""
    pad: int | None = None
    """Pixels of reflected border for random crops; by default an eighth of each side, rounded down; 0 is no crop."""
    ops: int = 2
    """RandAugment ops of a strong view, 0 to 10; each is applied with probability ½."""
    max_strength: int = MAX_STRENGTH
    """RandAugment strengths are drawn from 1 … max_strength-1 tenths of each op's range: 2 to 10."""
    cutout: float = 0.5
    """Sides of the grey hole of a strong view, as a share of the image's; 0 is no hole."""
    noise: float = 0.1
    """Feature vectors: standard deviation of the noise of both views, as a share of each dimension's scale."""
    mix: float = 0.0
    """Feature vectors: largest share that another sample of the batch may have in a strong view, at most ½."""
    mask: float = 0.3
    """Feature vectors: share of the dimensions that a strong view hides."""

    def check(self) -> None:
        """Raise UserError, naming the field and its range, if a number is out of range."""
        for field, allowed, remedy in (
            ("pad", self.pad is None or self.pad >= 0, "0 or more pixels, or None for an eighth of the side"),
            ("ops", 0 <= self.ops <= 10, "0 to 10"),
            ("max_strength", 2 <= self.max_strength <= MAX_STRENGTH, f"2 to {MAX_STRENGTH}"),
            ("cutout", 0 <= self.cutout <= 1, "0 to 1"),
            ("noise", 0 <= self.noise < float("inf"), "0 or more"),
            ("mix", 0 <= self.mix <= 0.5, "0 to 0.5"),
            ("mask", 0 <= self.mask <= 1, "0 to 1"),
        ):
            if not allowed:
                raise UserError(f"augment.{field} is {getattr(self, field)}: allowed is {remedy}")

    def must_suit(self, *, images: bool, frozen: bool = False) -> None:
        """Raise UserError if it asks for an augmentation that images, or vectors, do not have: it would do nothing.

        ``frozen``: these are images, but the views are those of their features.
        """
        samples, others = ("images", "feature vectors") if images else ("feature vectors", "images")
        for field, value in self._asked(OFF[others]):
            if frozen:
                remedy = "leave it out, or give --copies 2, or --scratch"
                raise UserError(
                    f"augment.{field} is {value}, but a frozen backbone has views of its features: {remedy}"
                )
            raise UserError(f"augment.{field} is {value}, which is for {others}, but these are {samples}: leave it out")

    def must_show(self, views: Collection[str], method: str) -> None:
        """Raise UserError if it changes strong views and the method has none: it would do nothing."""
        for field, value in self._asked(STRONG_ALONE) if set(views) <= WITHOUT_STRONG else ():
            raise UserError(
                f"augment.{field} is {value}, which is for strong views, but method {method!r} has none: "
                "leave it out, or choose another method"
            )

    def for_views(self, views: Collection[str]) -> "AugmentConfig":
        """The same, with the defaults of what is for strong views if these are none."""
        if not set(views) <= WITHOUT_STRONG:
            return self
        return replace(self, **{field: getattr(AugmentConfig, field) for field in STRONG_ALONE})

    def _asked(self, fields: Collection[str]) -> Iterator[tuple[str, object]]:
        """Fields that are neither at their default nor turned off: recipes of digits, say, have no flips."""
        off = OFF["images"] | OFF["feature vectors"]
        for field in fields:
            value = getattr(self, field)
            if value not in (getattr(AugmentConfig, field), off[field]):
                yield field, value
