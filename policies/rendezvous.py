"""Where a session goes while nobody knows better: everyone who asks finds the same replica."""

from collections.abc import Iterable
from hashlib import blake2b

from policies.types import ReplicaId


def rendezvous(key: str, replicas: Iterable[ReplicaId]) -> ReplicaId:
    """Return the replica with the highest hash of key and replica (Thaler and Ravishankar, 1998).

    A replica that comes or goes moves only the keys that it gets or had. Raises ValueError where
    there are no replicas.
    """
    return max(replicas, key=lambda replica: _weight(key, replica))


def _weight(key: str, replica: ReplicaId) -> bytes:
    return blake2b(f"{replica}\0{key}".encode(errors="surrogatepass"), digest_size=8).digest()
