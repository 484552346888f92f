"""The flags of ElasticDL's commands, one table for the client and the master. Unsupported flags are refused by name.

Clients pass every flag on to the master, so both must read the same flags, including those of later versions.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from typing import Any

from torchyard.elasticdl.flag_values import BadFlag

TRUE_WORDS = ("true", "yes", "t", "y")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_STRATEGIES = ("", "Local", "ParameterServerStrategy", "AllreduceStrategy", "CustomStrategy")
_EACH = "cpu=1,memory=4096Mi"


@dataclass(frozen=True, slots=True)
class Flag:
    name: str
    default: Any = ""
    help: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False


COMMON = (
    Flag("job_name", required=True, help="name of the job; the names of its pods begin with it"),
    Flag("image_name", help="image of the master, and of the workers without --worker_image"),
    Flag("worker_image", help="image of the workers"),
    Flag("ps_image"),
    Flag("namespace", "default"),
    Flag("master_resource_request", "cpu=0.1,memory=1024Mi"),
    Flag("master_resource_limit"),
    Flag("num_workers", 2, "number of worker pods"),
    Flag("worker_resource_request", _EACH),
    Flag("worker_resource_limit"),
    Flag("num_ps_pods", 0),
    Flag("ps_resource_request", _EACH),
    Flag("ps_resource_limit"),
    Flag("ps_pod_priority"),
    Flag("chief_resource_request", _EACH),
    Flag("chief_resource_limit"),
    Flag("chief_pod_priority"),
    Flag("evaluator_resource_request", _EACH),
    Flag("evaluator_resource_limit"),
    Flag("evaluator_pod_priority"),
    Flag("num_evaluators", 0),
    Flag("master_pod_priority", help="priority class of the master"),
    Flag("worker_pod_priority", help="high, low, or the fraction of workers with high priority, for example 0.5"),
    Flag("volume", help="host_path=/d,mount_path=/data;claim_name=c,mount_path=/m,sub_path=s"),
    Flag("image_pull_policy", "Always", choices=("Never", "IfNotPresent", "Always")),
    Flag("restart_policy", "Never", "restart policy of the master pod", ("Never", "OnFailure", "Always")),
    Flag("envs", help="environment variables of every pod: a=1,b=2"),
    Flag("populate_env_names", help="regular expression: the master passes its own matching variables to the workers"),
    Flag("extra_pypi_index", "https://pypi.org/simple"),
    Flag("num_minibatches_per_task", 8),
    Flag("cluster_spec", help="not supported; use --cluster_spec_json"),
    Flag(
        "cluster_spec_json",
        help="labels, annotations, affinity, tolerations and variables of the pods, as JSON or base64 of it",
    ),
    Flag("yaml", help="write the master pod to this file instead of submitting it"),
    Flag("force_use_kube_config_file", False),
    Flag("aux_params", help="only disable_relaunch=true is supported"),
    Flag("log_file_path", help="pods also write their output to this file"),
    Flag("minibatch_size", 64),
    Flag("model_zoo"),
    Flag("model_def"),
    Flag("feed", "feed"),
    Flag("loss", "loss"),
    Flag("optimizer", "optimizer"),
    Flag("callbacks", "callbacks"),
    Flag("eval_metrics_fn", "eval_metrics_fn"),
    Flag("custom_data_reader", "custom_data_reader"),
    Flag("get_model_steps", 1),
    Flag("data_reader_params"),
    Flag("distribution_strategy", "ParameterServerStrategy", choices=_STRATEGIES),
    Flag("checkpoint_steps", 0),
    Flag("checkpoint_dir"),
    Flag("keep_checkpoint_max", 0),
    Flag("output"),
    Flag("log_level", "INFO", choices=_LEVELS),
)
TRAIN = (
    Flag("num_epochs", 1),
    Flag("grads_to_wait", 1),
    Flag("training_data"),
    Flag("validation_data"),
    Flag("evaluation_steps", 0),
    Flag("checkpoint_dir_for_init"),
    Flag("sync_version_tolerance", 0),
    Flag("log_loss_steps", 100),
    Flag("max_step", 0),
    Flag("use_async", False),
    Flag("lr_staleness_modulation", False),
    Flag("need_elasticdl_job_service", False),
    Flag("need_task_manager", True),
    Flag("need_pod_manager", True),
    Flag("task_fault_tolerance", True),
    Flag("relaunch_timeout_worker", False),
    Flag("job_command", help="the command of every worker"),
    Flag("need_tf_config", False),
    Flag("relaunch_on_worker_failure", 1),
    Flag("ps_is_critical", True),
    Flag("critical_worker_index", "default"),
    Flag("ps_relaunch_max_num", 1),
    Flag("launch_worker_after_ps_running", "default"),
    Flag("enable_automate_memory", True),
)
EVALUATE = (Flag("validation_data", required=True), Flag("checkpoint_dir_for_init", required=True))
PREDICT = (
    Flag("prediction_data", required=True),
    Flag("prediction_outputs_processor", "PredictionOutputsProcessor"),
    Flag("checkpoint_dir_for_init", required=True),
)
MASTER = (Flag("port", 50001),)


def add(parser: argparse.ArgumentParser, flags: tuple[Flag, ...]) -> None:
    for flag in flags:
        option = f"--{flag.name}"
        if isinstance(flag.default, bool):
            # `--flag` without a value means the opposite of the default.
            parser.add_argument(
                option, nargs="?", const=not flag.default, default=flag.default, type=_parse_bool, help=flag.help
            )
        else:
            value_type = type(flag.default)
            choices = flag.choices or None
            parser.add_argument(
                option, default=flag.default, type=value_type, choices=choices, required=flag.required, help=flag.help
            )


def _parse_bool(text: str) -> bool:
    return text.lower() in TRUE_WORDS


def to_command_line(args: argparse.Namespace, flags: tuple[Flag, ...]) -> list[str]:
    """Return the command line of those flags that differ from their default."""
    arguments = []
    for flag in flags:
        value = getattr(args, flag.name)
        if value != flag.default:
            arguments += [f"--{flag.name}", str(value)]
    return arguments


def check_training(args: argparse.Namespace) -> None:
    """Refuse unsupported flags before anything is created."""
    if args.num_ps_pods:
        raise BadFlag(
            "--num_ps_pods: parameter servers are not supported",
            hint="remove the flag; workers average their gradients (AllreduceStrategy)",
        )
    if args.need_elasticdl_job_service or not args.job_command:
        raise BadFlag(
            "--job_command is missing: ElasticDL's own Keras loop is not supported",
            hint='set the command of every worker, for example --job_command="python -m model_zoo.mnist.mnist_pytorch"',
        )
    if args.need_tf_config or args.num_evaluators:
        raise BadFlag(
            "--need_tf_config, --num_evaluators: TensorFlow jobs are not supported", hint="remove these flags"
        )
    if args.cluster_spec:
        raise BadFlag("--cluster_spec: Python files are not supported", hint="use --cluster_spec_json")
    try:
        re.compile(args.populate_env_names)
    except re.error as error:
        raise BadFlag(f"--populate_env_names={args.populate_env_names} is not a regular expression: {error}") from error
    if args.num_workers < 1:
        raise BadFlag(f"--num_workers={args.num_workers}: the number must be at least 1")
    if not args.image_name:
        raise BadFlag("--image_name is missing", hint="use elasticdl/elasticdl:v1.0.0, or an image with torchyard")
