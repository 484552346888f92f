"""The built-in admission plugins, after kube-apiserver's.

Each plugin is a function that takes the `AdmissionAttributes` of a write. It changes the new object in place or raises
a `StatusError`. It reads only through the attributes' lister.

Read in this order:

- `attributes`: what a plugin knows about a write.
- `chain`: the plugins in kube-apiserver's order; the server calls this.
- `namespace_lifecycle`, `limit_ranger`, `service_account`, `resource_quota`: the plugins of the same names.
- `pods`: Priority, RuntimeClass and DefaultTolerationSeconds.
- `storage`: default classes, StorageObjectInUseProtection, PersistentVolumeClaimResize.
- `node_taints`: TaintNodesByCondition.
- `role_escalation`: the escalation checks for roles and bindings.
- `certificate_requests`: the requester, CertificateApproval, CertificateSigning, CertificateSubjectRestriction.
- `policy_parameters`: who may let an admission policy read parameters.
- `kueue`: what Kueue's webhooks do to jobs.
- `trainjob`: what Trainer's webhooks do to TrainJobs.
"""
