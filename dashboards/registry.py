"""All dashboards."""

from dashboards.autoscaling import AUTOSCALING
from dashboards.engines import ENGINES
from dashboards.kv_cache import KV_CACHE
from dashboards.overview import OVERVIEW
from dashboards.routing import ROUTING

DASHBOARDS = {one.uid: one for one in (OVERVIEW, ROUTING, KV_CACHE, AUTOSCALING, ENGINES)}
