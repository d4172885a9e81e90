"""Write admission for a host KV tier: facts in, decision out; the standard library only.

The same objects run in tests and inside vLLM, so what was tested is what is deployed.
"""

from eactl.policy.admission import POLICIES, Admission, AdmissionSettings, Decision, Pool
from eactl.policy.lineage import Lineage
from eactl.policy.tier import TierReport, TierSize

__all__ = ["POLICIES", "Admission", "AdmissionSettings", "Decision", "Lineage", "Pool", "TierReport", "TierSize"]
