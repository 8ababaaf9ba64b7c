"""The `args` of serve.yaml, parsed once; unknown keys are errors."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    model_validator,
    with_config,
)

from policies.autoscale_settings import AutoscaleSettings
from policies.tunables import Tunables

ENGINE_DEFAULTS: dict[str, Any] = {
    "enable_prefix_caching": True,
    "enable_prompt_tokens_details": True,
}
"""vLLM settings that warmturn turns on unless serve.yaml says otherwise."""

KV_OFFLOAD_KEYS = frozenset({"kv_transfer_config", "kv_offloading_size"})
"""vLLM settings that place KV themselves, so `kv_offload_gib` cannot stand beside them."""


class RouterName(StrEnum):
    """Our own router, and those that come with Ray, to compare it with."""

    WARMTURN = "warmturn"
    POWER_OF_TWO = "power_of_two"
    ROUND_ROBIN = "round_robin"
    CONSISTENT_HASH = "consistent_hash"
    PREFIX_AFFINITY = "prefix_affinity"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _not_empty(given: Any) -> Any:
    if given == "":
        raise ValueError("names no path")
    return given


NamedPath = Annotated[Path, BeforeValidator(_not_empty)]
"""Not the empty one, which would mean where Ray was started."""


class GatewayConfig(_Strict):
    """Limits and habits of the HTTP gateway."""

    session_headers: tuple[str, ...] = ()
    """Further request headers that carry a session id, asked before the known ones."""

    volatile_lines: tuple[re.Pattern[str], ...] = (re.compile(r"x-anthropic-billing-header:.*"),)
    """Lines removed from system prompts: regular expressions, each for a whole line."""

    max_body_mib: float = Field(default=16, gt=0, le=200)
    """Largest request body, in MiB; a larger one gets 413. serve.yaml lets gRPC carry 256 MiB."""

    request_timeout_s: float = Field(default=1800, gt=0)
    """Longest time from a request's arrival to the end of its answer, in seconds."""

    retry_after_s: int = Field(default=2, ge=1)
    """What a 429 or 503 tells the client to wait, in seconds."""

    max_attempts: int = Field(default=3, ge=1)
    """Replicas tried for a request that has not begun to answer, the first included."""

    ready_timeout_s: float = Field(default=2, gt=0)
    """How long /ready waits for a replica to answer, in seconds."""

    router_timeout_s: float = Field(default=0.5, gt=0)
    """How long a turn waits for the router actor before it's placed without it, in seconds."""


class SharedDirectory(_Strict):
    """A directory that all replicas read and write."""

    type: Literal["fs"]

    path: NamedPath
    """The directory; a relative one is seen from where Ray was started, as a model's is."""

    gib: float = Field(gt=0)
    """Bound on what all replicas together keep there, in GiB."""


class SharedService(BaseModel):
    """One of vLLM's own tiers for CUDA, an object store or peers, with vLLM's options for it."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: Literal["obj", "p2p"]


class RecordConfig(_Strict):
    """A file in which each finished turn becomes a line of JSON, for benchmarks to replay."""

    path: NamedPath
    """On the node of the router actor; a relative one is seen from where Ray was started."""

    max_gib: float = Field(default=4, gt=0)
    """Bound on the file and the older one beside it, in GiB."""


def _path_alone(given: Any) -> Any:
    return {"path": given} if isinstance(given, str) else given


class AppConfig(_Strict):
    """Everything warmturn itself is told; replicas and placement are Serve's `deployments`."""

    model: str = Field(min_length=1)
    """A model directory, or a name on the model hub."""

    engine: dict[str, Any] = {}
    """Any vLLM engine or server argument by its long name, with `_` or `-`."""

    kv_offload_gib: float = Field(default=0, ge=0)
    """CPU memory per replica for KV evicted from the primary cache, in GiB; 0 turns it off."""

    kv_shared: Annotated[SharedDirectory | SharedService, Field(discriminator="type")] | None = None
    """Where replicas leave KV for each other, below their CPU memory."""

    kv_audit_interval_s: float | None = Field(default=3600, gt=0)
    """How often a replica computes a prompt once more to see whether its KV is right, in seconds;
    None turns it off."""

    router: RouterName = RouterName.WARMTURN
    """What chooses the replica of a request."""

    record: Annotated[RecordConfig | None, BeforeValidator(_path_alone)] = None
    """Where finished turns are recorded, without a word of what was said; a path alone will do."""

    record_prompts: bool = False
    """Whether the body of each request, as it was sent, is recorded too."""

    gateway: GatewayConfig = GatewayConfig()

    otlp_traces_endpoint: str | None = Field(default=None, pattern="^https?://.")
    """Where gateways and engines send OpenTelemetry spans; vLLM's setting of the same name."""

    @model_validator(mode="after")
    def _one_owner_of_kv_placement(self) -> Self:
        both = KV_OFFLOAD_KEYS & {key.replace("-", "_") for key in self.engine}
        if self.kv_offload_gib and both:
            raise ValueError(f"kv_offload_gib and engine.{min(both)} exclude each other")
        return self

    @model_validator(mode="after")
    def _shared_tier_is_below_the_cpu_tier(self) -> Self:
        if self.kv_shared and not self.kv_offload_gib:
            raise ValueError("kv_shared needs kv_offload_gib above 0: KV goes there by CPU memory")
        return self

    @model_validator(mode="after")
    def _only_our_router_records(self) -> Self:
        if self.record and self.router is not RouterName.WARMTURN:
            raise ValueError("record needs router: warmturn, which hears of every turn")
        if self.record_prompts and not self.record:
            raise ValueError("record_prompts needs record, which says where")
        return self

    @model_validator(mode="after")
    def _model_is_set_once(self) -> Self:
        if {"model", "model_tag"} & self.engine.keys():
            raise ValueError("set the model as args.model, not under args.engine")
        return self

    @property
    def kv_shared_gib(self) -> float:
        """Bound of the shared tier, in GiB; 0 where there is none, or none that is known."""
        return self.kv_shared.gib if isinstance(self.kv_shared, SharedDirectory) else 0.0

    def engine_settings(self) -> dict[str, Any]:
        """Return what vLLM's parser is given, keyed by vLLM's names with `_`."""
        given = {key.replace("-", "_"): value for key, value in self.engine.items()}
        named = {
            "model": self.model,
            "served_model_name": served_name(self.model),
            "otlp_traces_endpoint": self.otlp_traces_endpoint,
        }
        return ENGINE_DEFAULTS | named | given


for _settings in (Tunables, AutoscaleSettings):
    with_config(ConfigDict(extra="forbid", allow_inf_nan=False))(_settings)


class UserConfig(_Strict):
    """The `user_config` of the gateway deployment: it changes without a restart."""

    routing: Tunables = Tunables()
    """What decisions depend on; see `policies.tunables`."""


def autoscale_settings(given: dict[str, Any]) -> AutoscaleSettings:
    """Return an autoscaling policy's settings.

    Raises:
        ValidationError: one is unknown, or not what it must be.
    """
    return TypeAdapter(AutoscaleSettings).validate_python(given)


def served_name(model: str) -> str:
    """Return the name clients use: a directory's last part, or the hub name as it is."""
    return Path(model).name if Path(model).is_dir() else model
