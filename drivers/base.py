"""A driver in Python: a class, one instance per device, typed methods with `@action` that `describe` is made from."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from edgepanda.drivers.contract import VERSION, Description, DriverError, Event, OnBusy, Probe, Replay, State, Tier
from edgepanda.drivers.schema import Bound, bind, struct_schema

Method = TypeVar("Method", bound=Callable[..., Any])


def action(
    *,
    tier: Tier,
    replay: Replay,
    on_busy: OnBusy = "refuse",
    timeout: float = 30.0,
    units: dict[str, str] | None = None,
    returns: Any = None,
    spoken: tuple[str, ...] = (),
    home: dict[str, Any] | None = None,
) -> Callable[[Method], Method]:
    """Marks a method `(self, ctx, **args)` as an action.

    `tier` and `replay` have no default on purpose: who writes a driver decides them. `timeout` is in seconds, `units`
    names the physical unit of each argument that has one. The first line of the docstring becomes the description.
    The annotations (`float`, `Literal[...]`, `Annotated[int, msgspec.Meta(ge=0)]`, a `Struct`) become the schema.
    `returns` is the type of the result's value, for a method that gives a whole `CallResult`.
    """

    def mark(method: Method) -> Method:
        options = {"tier": tier, "replay": replay, "on_busy": on_busy, "timeout": timeout, "spoken": spoken}
        method.__action__ = (options | {"home": home or {}}, units or {}, returns)  # type: ignore[attr-defined]
        return method

    return mark


class NoConfig(msgspec.Struct, forbid_unknown_fields=True):
    """The configuration of a device that needs none."""


class Driver:
    """Base of a driver: subclass, set `name`, `version` and `Config`, write actions, override what the device needs.

    An instance is one device. All its methods but `probe` run on that device's own thread, one after another.
    """

    name: ClassVar[str] = ""
    version: ClassVar[str] = "1"
    remembers: ClassVar[bool] = False
    attaches: ClassVar[bool] = False
    silence: ClassVar[float] = 0.0
    ends_within: float = 2.0
    """Seconds that a cancelled call may take to end once it noticed; `open` may set it for its device."""
    Config: ClassVar[type[msgspec.Struct]] = NoConfig

    _bound: ClassVar[dict[str, Bound]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        marked = {n: m for base in reversed(cls.__mro__) for n, m in vars(base).items() if hasattr(m, "__action__")}
        cls._bound = {n: bind(m, *m.__action__) for n, m in marked.items()}

    def __init__(self, device: str, config: Any, run_dir: Path, notify: Callable[[str, Any], None]) -> None:
        self.device = device
        self.config = config
        self.run_dir = run_dir
        self.log = logging.getLogger(f"edgepanda.drivers.{self.name}.{device}")
        self._notify = notify
        self._under_way: Callable[[], None] | None = None

    @classmethod
    def describe(cls) -> Description:
        """What this driver is and can do."""
        actions = {name: bound.spec for name, bound in cls._bound.items()}
        return Description(
            VERSION,
            cls.name,
            cls.version,
            actions,
            struct_schema(cls.Config),
            cls.remembers,
            cls.attaches,
            cls.silence,
        )

    @classmethod
    def read_config(cls, config: dict[str, Any]) -> Any:
        """The typed configuration.

        Raises:
            DriverError: `invalid_args`, naming the key.
        """
        try:
            return msgspec.convert(config, cls.Config, strict=True)
        except (msgspec.ValidationError, ValueError) as error:
            known = ", ".join(cls.Config.__struct_fields__)
            raise DriverError(
                f"the configuration is not valid: {error}",
                code="invalid_args",
                where="configuration",
                cure=f"its keys are: {known}",
            ) from error

    @classmethod
    def probe(cls, config: Any) -> Probe:
        """Whether a device of this (typed) configuration can be used here. Must not move or claim anything."""
        return Probe(usable=True)

    def open(self, known: dict[str, Any] | None) -> None:
        """Takes the hardware. `known` holds the last remembered state values; None means that nobody knows them."""

    def safe(self) -> None:
        """Brings the device to its safe state. If that takes longer than 0.2 s, call `under_way` once it has begun."""

    def exit(self) -> None:
        """What happens before the host exits; the safe state, unless the driver's work outlives its host."""
        self.safe()

    def close(self) -> None:
        """Gives the hardware back. May be called twice."""

    def state(self, **values: Any) -> None:
        """Tells the node the device's present values."""
        self._notify("state", State(self.device, values))

    def event(self, name: str, data: Any = None) -> None:
        """Tells the node that something happened at the device."""
        self._notify("event", Event(self.device, name, data))

    def under_way(self) -> None:
        """Answers the running `safe` request now: the safe state is being approached and will be reached."""
        if self._under_way is not None:
            self._under_way()
            self._under_way = None
