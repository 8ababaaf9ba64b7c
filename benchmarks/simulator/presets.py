"""What is simulated: a model on hardware, each number with its source."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Hardware:
    """One replica: its memory for KV, and how long its engine's steps take.

    A step computes one token of each request that decodes, and up to `step_tokens` in all:

        step_s = base_step_s + decoding * decode_s + their context tokens / context_tokens_per_s
                 + prefilled tokens / prefill_tokens_per_s

    `host_tokens` of KV fit in the replica's CPU memory, which is read at `restore_tokens_per_s`.
    """

    kv_bytes_per_token: int

    gpu_tokens: int
    host_tokens: int
    max_context_tokens: int
    max_requests: int
    step_tokens: int
    base_step_s: float
    decode_s: float
    context_tokens_per_s: float
    prefill_tokens_per_s: float
    restore_tokens_per_s: float
    shrink_ratio: int = 1
    """By how much recorded sessions are shrunk to fit the model's context."""

    def step_s(self, prefilled: int, decoding: int, context_tokens: float) -> float:
        """Return how long a step takes."""
        return (
            self.base_step_s
            + decoding * self.decode_s
            + context_tokens / self.context_tokens_per_s
            + prefilled / self.prefill_tokens_per_s
        )


KIMI_B200 = Hardware(
    # A Kimi-K2.6-class MoE (1T parameters, 32B active, MLA, 256k context) on 4 x B200.
    kv_bytes_per_token=72_000,  # Modal
    gpu_tokens=450_000,  # Modal, "How to serve trillions of tokens ...": 0.45M tokens on TP4
    host_tokens=0,
    max_context_tokens=262_144,  # the model's card
    max_requests=256,
    step_tokens=8192,  # vLLM's default for servers on 70 GiB and more; 16,384 from 160 GiB
    # 550 GB of 4-bit weights on 32 TB/s of memory: 17 ms when all experts are needed, about 3 ms
    # for the few that a handful of requests needs; 61 layers of kernels and all-reduces add 9 ms.
    base_step_s=0.012,
    decode_s=0.0006,  # 8 of 384 experts each: 2 % of the weights a request, most not shared
    context_tokens_per_s=270e6,  # 72 KB a token (Modal) on 32 TB/s, 60 % reached
    # 64 GFLOP a token on 9 PFLOP/s (dense bf16, as 4-bit weights are expanded), 14 % reached.
    prefill_tokens_per_s=20_000.0,
    restore_tokens_per_s=350_000.0,  # 72 KB a token at 25 GB/s, about half of PCIe 5 x16
)

PRESETS = {
    "kimi-b200": KIMI_B200,
    # 108 GB of CPU memory a replica at 72 KB a token.
    "kimi-b200-host": replace(KIMI_B200, host_tokens=1_500_000),
    # FP8 halves a token's KV: twice the tokens in either memory, and twice as many a second.
    "kimi-b200-fp8": replace(
        KIMI_B200,
        kv_bytes_per_token=36_000,
        gpu_tokens=900_000,
        context_tokens_per_s=540e6,
        restore_tokens_per_s=700_000.0,
    ),
    "kimi-b200-fp8-host": replace(
        KIMI_B200,
        kv_bytes_per_token=36_000,
        gpu_tokens=900_000,
        host_tokens=3_000_000,
        context_tokens_per_s=540e6,
        restore_tokens_per_s=700_000.0,
    ),
    "8b-h200": Hardware(
        # Llama 3.1 8B in bf16 on one H200 (141 GB, 4.8 TB/s, 989 TFLOP/s dense).
        kv_bytes_per_token=131_072,  # 32 layers, 8 heads of 128, keys and values, bf16
        gpu_tokens=800_000,  # 0.9 x 141 GB less 16 GB of weights and 5 GB for activations, ...
        host_tokens=0,
        max_context_tokens=131_072,  # the model's card
        max_requests=256,
        step_tokens=8192,  # vLLM's default for servers on 70 GiB and more
        base_step_s=0.005,  # 16 GB of weights at 70 % of 4.8 TB/s
        decode_s=0.00005,
        context_tokens_per_s=26e6,  # ... at 128 KiB a token (32 layers, 8 heads of 128); 70 %
        prefill_tokens_per_s=30_000.0,  # 16 GFLOP a token, 50 % of 989 TFLOP/s
        restore_tokens_per_s=190_000.0,  # 128 KiB a token at 25 GB/s
    ),
    "smollm2-cpu": Hardware(
        # SmolLM2 135M in float32 on two cores, with serve.yaml's 512 MiB; sessions shrunk.
        kv_bytes_per_token=46_080,  # 30 layers, 3 heads of 64, keys and values, float32
        gpu_tokens=11_650,
        host_tokens=0,
        max_context_tokens=8192,  # the model's card
        max_requests=16,  # serve.yaml
        step_tokens=2048,  # vLLM's default for servers elsewhere
        base_step_s=0.03,  # 540 MB of weights at 18 GB/s
        decode_s=0.004,
        context_tokens_per_s=400_000.0,  # 45 KiB a token at 18 GB/s
        prefill_tokens_per_s=300.0,  # 270 MFLOP a token at 80 GFLOP/s
        restore_tokens_per_s=100_000.0,
        shrink_ratio=32,
    ),
}


def preset_of(name: str) -> Hardware:
    """Return the hardware of that name; ValueError where there is none."""
    if name not in PRESETS:
        msg = f"there is no {name}; there are {', '.join(PRESETS)}"
        raise ValueError(msg)
    return PRESETS[name]
