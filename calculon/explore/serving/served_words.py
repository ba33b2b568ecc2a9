"""Words of an address about serving: fields of workloads and deployments, as ``--set`` names them.

Only fields with a control are allowed in addresses, so that no field can name a file.
"""

from collections.abc import Mapping

from calculon.declarations.fields import SpecField, spec_fields
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.load import Workload


def _words(kind: str, record: type) -> Mapping[str, SpecField]:
    return {f"{kind}.{one.key}": one for one in spec_fields(record) if one.declaration.control}


REQUESTS = _words("workload", Workload)
"""Fields of requests and their limits, by word."""

DEPLOYMENT = _words("deployment", Deployment)
"""Fields of a deployment, by word."""

SERVED_FIELDS = {one.key: one for one in (*REQUESTS.values(), *DEPLOYMENT.values())}
"""All serving fields by their names in files."""
