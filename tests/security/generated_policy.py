"""Random roles and bindings, and access reviews about them. A seed determines both.

Half of the questions are drawn from what a rule grants and then changed in one place; the rest are independent of the
rules. So both verdicts are frequent, and most denials are near misses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from torchyard.api.objects import Object

RBAC = "rbac.authorization.k8s.io"
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
SPECIAL_VERBS = ("impersonate", "bind", "escalate", "approve", "sign", "use", "proxy", "GET", "*", "")
GROUPS = ("", "apps", "batch", RBAC, "kubeflow.org", "kueue.x-k8s.io", "example.com")
RESOURCES = (
    *("pods", "secrets", "configmaps", "services", "nodes", "namespaces", "serviceaccounts", "deployments", "jobs"),
    *("pytorchjobs", "localqueues", "workloads", "clusterroles", "roles", "certificatesigningrequests", "signers"),
    *("users", "groups", "userextras", "Pods", "pod", "widgets"),
)
SUBRESOURCES = (
    *("status", "scale", "log", "exec", "attach", "portforward", "proxy", "eviction", "binding", "token", "approval"),
    *("ephemeralcontainers", "resize", "finalizers", "finalize", "scopes"),
)
NAMES = ("a", "b", "a-b", "A", "kubernetes.io/kubelet", "system:masters", "*")
NAMESPACES = ("authz-one", "authz-two", "authz-three")
URLS = (
    *("/", "/healthz", "/healthz/ping", "/livez", "/readyz/etcd", "/metrics", "/metrics/slis", "/version", "/version/"),
    *("/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/openapi/v3", "/logs", "/debug/pprof", "healthz"),
    *("/healthzz", "/HEALTHZ", "//healthz", "/metrics?x=1", "*", ""),
)
URL_PATTERNS = (
    *("*", "/*", "/healthz", "/healthz/*", "/healthz*", "/metrics", "/metrics/*", "/version", "/version/", "/api*"),
    *("/apis/*", "/apis/apps*", "/openapi/**", "/debug/*", "/logs/*/x", "*z", "healthz", "/"),
)
HTTP_VERBS = ("get", "head", "post", "put", "patch", "delete", "options", "*", "GET")


@dataclass(frozen=True)
class GeneratedPolicy:
    seed: int
    objects: list[Object] = field(default_factory=list)
    reviews: list[Object] = field(default_factory=list)  # specs of SubjectAccessReviews


def generate(seed: int, questions: int) -> GeneratedPolicy:
    return _Generator(seed).policy(questions)


class _Generator:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = Random(seed)
        self._prefix = f"pairs-{seed}"
        self.users = [f"{self._prefix}-user{number}" for number in range(6)]
        self.groups = [f"{self._prefix}-group{number}" for number in range(4)]
        self.accounts = [(namespace, f"{self._prefix}-account") for namespace in NAMESPACES[:2]]
        # role name -> (namespace, or "" for a ClusterRole; its rules)
        self._roles: dict[str, tuple[str, list[Object]]] = {}
        self._aggregated: list[str] = []
        # (subject, namespace or "", rules)
        self._grants: list[tuple[tuple[str, str], str, list[Object]]] = []

    def policy(self, questions: int) -> GeneratedPolicy:
        objects = [self._cluster_role(number) for number in range(24)]
        objects += [self._aggregated_role(number, objects[:24]) for number in range(3)]
        objects += [self._role(number) for number in range(18)]
        objects += [self._binding(number) for number in range(40)]
        return GeneratedPolicy(self._seed, objects, [self._question() for _ in range(questions)])

    def _some(self, pool: tuple[str, ...], most: int) -> list[str]:
        count = self._random.randint(1, most)
        return list(dict.fromkeys(self._random.choice(pool) for _ in range(count)))

    def _rule(self, *, paths: bool) -> Object:
        random = self._random
        if paths and random.random() < 0.3:
            return {"verbs": self._some(HTTP_VERBS, 3), "nonResourceURLs": self._some(URL_PATTERNS, 3)}
        verbs = ["*"] if random.random() < 0.15 else self._some((*VERBS, *VERBS, *SPECIAL_VERBS[:-1]), 4)
        groups = ["*"] if random.random() < 0.15 else self._some(GROUPS, 2)
        rule: Object = {"verbs": verbs, "apiGroups": groups, "resources": self._rule_resources()}
        if random.random() < 0.3:
            rule["resourceNames"] = self._some(NAMES, 3)
        return rule

    def _rule_resources(self) -> list[str]:
        random, resources = self._random, []
        for _ in range(random.randint(1, 3)):
            resource, subresource = random.choice(RESOURCES), random.choice(SUBRESOURCES)
            patterns = (
                *(resource, resource, resource, f"{resource}/{subresource}", f"{resource}/{subresource}"),
                *(f"*/{subresource}", f"{resource}/*", "*/*", "*", f"{resource}/", f"*{subresource}", f"*/*{resource}"),
            )
            resources.append(random.choice(patterns))
        return list(dict.fromkeys(resources))

    def _cluster_role(self, number: int) -> Object:
        rules = [self._rule(paths=True) for _ in range(self._random.randint(0, 3))]
        name = f"{self._prefix}-cluster{number}"
        self._roles[name] = ("", rules)
        labels = {f"{self._prefix}/to": self._random.choice(("x", "y"))} if self._random.random() < 0.4 else {}
        return _object("ClusterRole", {"name": name, "labels": labels}, rules=rules)

    def _aggregated_role(self, number: int, parts: list[Object]) -> Object:
        name, label = f"{self._prefix}-sum{number}", f"{self._prefix}/to"
        selectors: list[Object] = [
            {"matchLabels": {label: "x"}},
            {"matchExpressions": [{"key": label, "operator": "In", "values": ["y", "z"]}]},
        ]
        values = ("x", "y")
        chosen = (0,) if number == 0 else (1,) if number == 1 else (0, 1)
        wanted = {values[index] for index in chosen}
        members = [part for part in parts if part["metadata"]["labels"].get(label) in wanted]
        rules: list[Object] = []
        for part in members:
            rules += [rule for rule in part["rules"] if rule not in rules]
        self._roles[name] = ("", rules)
        self._aggregated.append(name)
        return _object(
            "ClusterRole",
            {"name": name},
            aggregationRule={"clusterRoleSelectors": [selectors[index] for index in chosen]},
        )

    def _role(self, number: int) -> Object:
        name, namespace = f"{self._prefix}-role{number}", self._random.choice(NAMESPACES)
        rules = [self._rule(paths=False) for _ in range(self._random.randint(0, 3))]
        self._roles[name] = (namespace, rules)
        return _object("Role", {"name": name, "namespace": namespace}, rules=rules)

    def _binding(self, number: int) -> Object:
        """To a role, sometimes to one that does not exist, or to a Role of another namespace."""
        random = self._random
        name = self._aggregated[number] if number < len(self._aggregated) else random.choice(list(self._roles))
        role_namespace, rules = self._roles[name]
        namespace = role_namespace or random.choice(("", "", *NAMESPACES))
        if random.random() < 0.06:
            name, rules = f"{name}-missing", []
        elif role_namespace and random.random() < 0.1:
            namespace, rules = random.choice(NAMESPACES), []
        subjects = [self._subject(namespace) for _ in range(random.randint(1, 3))]
        for subject in subjects:
            self._grants.append((_identity(subject, namespace), namespace, rules))
        metadata = {"name": f"{self._prefix}-binding{number}", **({"namespace": namespace} if namespace else {})}
        reference = {"apiGroup": RBAC, "kind": "Role" if role_namespace else "ClusterRole", "name": name}
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        return _object(kind, metadata, subjects=subjects, roleRef=reference)

    def _subject(self, namespace: str) -> Object:
        random = self._random
        match random.randrange(5):
            case 0 | 1:
                return {"apiGroup": RBAC, "kind": "User", "name": random.choice(self.users)}
            case 2 | 3:
                return {"apiGroup": RBAC, "kind": "Group", "name": random.choice(self.groups)}
        account_namespace, name = random.choice(self.accounts)
        if namespace == account_namespace and random.random() < 0.5:
            return {"kind": "ServiceAccount", "name": name}
        return {"kind": "ServiceAccount", "name": name, "namespace": account_namespace}

    def _question(self) -> Object:
        random = self._random
        if self._grants and random.random() < 0.6:
            identity, namespace, rules = random.choice(self._grants)
            if rules:
                return self._near_question(identity, namespace, random.choice(rules))
        kind, name = random.choice([("User", random.choice(self.users)), ("Group", random.choice(self.groups))])
        if random.random() < 0.3:
            return {**self._asking((kind, name)), "nonResourceAttributes": self._path_attributes()}
        return {**self._asking((kind, name)), "resourceAttributes": self._attributes()}

    def _asking(self, identity: tuple[str, str]) -> Object:
        """A user who is the subject or a member of it, with other groups beside."""
        kind, name = identity
        random = self._random
        others = [group for group in self.groups if random.random() < 0.15]
        if random.random() < 0.3:
            others.append("system:authenticated")
        if kind == "Group":
            groups = [*others, name] if name not in others else others
            return {"user": random.choice((f"{self._prefix}-nobody", *self.users)), "groups": groups}
        return {"user": name, **({"groups": others} if others else {})}

    def _near_question(self, identity: tuple[str, str], namespace: str, rule: Object) -> Object:
        """What the rule grants, with one part changed every other time."""
        random = self._random
        asking = self._asking(identity)
        if "nonResourceURLs" in rule:
            path = random.choice(rule["nonResourceURLs"]).replace("*", random.choice(("", "x", "/y", "*")))
            verb = random.choice(rule["verbs"]).replace("*", "get")
            if random.random() < 0.4:
                path, verb = random.choice(((path + "x", verb), (path.rstrip("/"), verb), (path, "post")))
            return {**asking, "nonResourceAttributes": {"path": path, "verb": verb}}
        attributes = {
            "verb": self._concrete(random.choice(rule["verbs"]), (*VERBS, *SPECIAL_VERBS)),
            "group": self._concrete(random.choice(rule["apiGroups"]), GROUPS),
            "namespace": namespace or random.choice(("", *NAMESPACES)),
            "name": random.choice(rule.get("resourceNames") or ("", *NAMES)),
            **self._concrete_resource(random.choice(rule["resources"])),
        }
        if random.random() < 0.5:
            changes = self._attributes()
            changed = random.choice(list(changes))
            attributes[changed] = changes[changed]
        return {**asking, "resourceAttributes": {key: value for key, value in attributes.items() if value}}

    def _concrete(self, value: str, pool: tuple[str, ...]) -> str:
        return self._random.choice(pool) if value == "*" else value

    def _concrete_resource(self, pattern: str) -> Object:
        resource, _, subresource = pattern.partition("/")
        resource = self._concrete(resource, RESOURCES)
        subresource = self._concrete(subresource, SUBRESOURCES)
        return {"resource": resource, "subresource": subresource}

    def _attributes(self) -> Object:
        random = self._random
        attributes = {
            "verb": random.choice((*VERBS, *VERBS, *SPECIAL_VERBS)),
            "group": random.choice((*GROUPS, "*")),
            "resource": random.choice((*RESOURCES, "*", "")),
            "subresource": random.choice(("", "", "", *SUBRESOURCES, "*")),
            "namespace": random.choice(("", *NAMESPACES, "*")),
            "name": random.choice(("", "", *NAMES)),
        }
        return {key: value for key, value in attributes.items() if value or key == "verb"}

    def _path_attributes(self) -> Object:
        return {"path": self._random.choice(URLS), "verb": self._random.choice(HTTP_VERBS)}


def _identity(subject: Object, namespace: str) -> tuple[str, str]:
    """("User", name) or ("Group", name) of a binding's subject."""
    if subject["kind"] == "ServiceAccount":
        return "User", f"system:serviceaccount:{subject.get('namespace', namespace)}:{subject['name']}"
    return subject["kind"], subject["name"]


def _object(kind: str, metadata: Object, **body: object) -> Object:
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, **body}
