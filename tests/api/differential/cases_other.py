"""Cases of kinds that the server only stores: policies, flow control, devices, IP addresses."""

from __future__ import annotations

from tests.api.differential.cases_service import of
from tests.api.differential.verdict import Case

from torchyard.api.objects import Object

ADMISSION = "admissionregistration.k8s.io/v1"
FLOW = "flowcontrol.apiserver.k8s.io/v1"
DEVICE = "resource.k8s.io/v1"
NETWORK = "networking.k8s.io/v1"
RULE: Object = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
POOL: Object = {"name": "p", "generation": 1, "resourceSliceCount": 1}
REQUEST: Object = {"name": "a", "exactly": {"deviceClassName": "x"}}
CSR = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K"

GOOD: dict[str, Object] = {
    "a policy": of(
        ADMISSION,
        "ValidatingAdmissionPolicy",
        spec={"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "true"}]},
    ),
    "a policy's binding": of(
        ADMISSION, "ValidatingAdmissionPolicyBinding", spec={"policyName": "p", "validationActions": ["Deny"]}
    ),
    "a flow": of(FLOW, "FlowSchema", spec={"priorityLevelConfiguration": {"name": "global-default"}}),
    "a level": of(
        FLOW,
        "PriorityLevelConfiguration",
        spec={"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}},
    ),
    "a level with queues": of(
        FLOW,
        "PriorityLevelConfiguration",
        spec={"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {"queues": 128}}}},
    ),
    "an address": of(
        NETWORK,
        "IPAddress",
        name="10.96.0.99",
        spec={"parentRef": {"resource": "services", "name": "a", "namespace": "b"}},
    ),
    "a range": of(NETWORK, "ServiceCIDR", spec={"cidrs": ["10.97.0.0/16"]}),
    "a class of devices": of(DEVICE, "DeviceClass", spec={}),
    "a claim of devices": of(DEVICE, "ResourceClaim", spec={"devices": {"requests": [REQUEST]}}),
    "a template of claims": of(DEVICE, "ResourceClaimTemplate", spec={"spec": {"devices": {"requests": [REQUEST]}}}),
    "a slice of devices": of(DEVICE, "ResourceSlice", spec={"driver": "a.b", "nodeName": "n", "pool": POOL}),
}

BAD: dict[str, Object] = {
    "a policy of nothing": of(ADMISSION, "ValidatingAdmissionPolicy", spec={}),
    "a policy": of(
        ADMISSION,
        "ValidatingAdmissionPolicy",
        spec={
            "failurePolicy": "X",
            "paramKind": {},
            "matchConstraints": {
                "matchPolicy": "X",
                "namespaceSelector": {"matchLabels": {"-": "a"}},
                "resourceRules": [
                    {
                        "operations": ["*", "CREATE"],
                        "apiGroups": ["*"],
                        "apiVersions": [""],
                        "resources": ["*/*", "pods"],
                        "resourceNames": ["a", "a", "b/c"],
                        "scope": "X",
                    }
                ],
                "excludeResourceRules": [{}],
            },
            "matchConditions": [{"name": "a b"}, {}],
            "variables": [{}],
            "validations": [{"expression": " ", "message": " ", "reason": "X"}],
            "auditAnnotations": [{"key": "a b"}],
        },
    ),
    "a policy's binding": of(
        ADMISSION,
        "ValidatingAdmissionPolicyBinding",
        spec={"policyName": "", "validationActions": ["Deny", "Warn", "X", "X"]},
    ),
    "a policy's binding with parameters": of(
        ADMISSION,
        "ValidatingAdmissionPolicyBinding",
        spec={
            "policyName": "A",
            "validationActions": ["Deny"],
            "paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "X"},
            "matchResources": {"matchPolicy": "X"},
        },
    ),
    "a policy's binding with no parameters": of(
        ADMISSION,
        "ValidatingAdmissionPolicyBinding",
        spec={"policyName": "a", "validationActions": ["Deny"], "paramRef": {}},
    ),
    "a policy's binding to nothing": of(ADMISSION, "ValidatingAdmissionPolicyBinding", spec={}),
    "a certificate request": of(
        "certificates.k8s.io/v1", "CertificateSigningRequest", spec={"request": "eA==", "signerName": "x"}
    ),
    "a level": of(FLOW, "PriorityLevelConfiguration", spec={"type": "X"}),
    "a level without an answer": of(FLOW, "PriorityLevelConfiguration", spec={"type": "Limited", "limited": {}}),
    "a flow": of(FLOW, "FlowSchema", spec={"matchingPrecedence": -1, "priorityLevelConfiguration": {"name": ""}}),
    "an address": of(NETWORK, "IPAddress"),
    "no range": of(NETWORK, "ServiceCIDR", spec={}),
    "many ranges": of(NETWORK, "ServiceCIDR", spec={"cidrs": ["1.0.0.0/8", "2.0.0.0/8", "3.0.0.0/8"]}),
    "a claim of devices": of(
        DEVICE,
        "ResourceClaim",
        spec={"devices": {"requests": [{"name": "A"}, {"name": "a", "exactly": {"deviceClassName": ""}}]}},
    ),
    "a slice of devices": of(
        DEVICE, "ResourceSlice", spec={"driver": "", "pool": {"name": "", "generation": 0, "resourceSliceCount": 0}}
    ),
}

CASES = [Case(f"good: {name}", obj) for name, obj in GOOD.items()]
CASES += [Case(f"bad: {name}", obj) for name, obj in BAD.items()]
