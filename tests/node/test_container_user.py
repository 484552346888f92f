"""The user and groups of containers: from the pod, the image's USER, and the files of a possibly hostile image."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchyard.api.objects import Object
from torchyard.node.images.model import Image, ImageConfig
from torchyard.node.pod.container_user import container_user, home_directory
from torchyard.node.pod.environment import CreateContainerConfigError
from torchyard.node.runtime.rootfs_steps import RootfsSource

PASSWD = "root:x:0:0::/root:/bin/sh\nann:x:100:200::/home/ann:/bin/sh\nbad:x:²:1::/:/x\nshort\n"
GROUP = "root:x:0:\nteam:x:300:bob,ann\nhostile:x:²:ann\nother:x:400:bob\n"


def image_of(tmp_path: Path, user: str = "") -> Image:
    (tmp_path / "etc").mkdir(exist_ok=True)
    (tmp_path / "etc" / "passwd").write_text(PASSWD)
    (tmp_path / "etc" / "group").write_text(GROUP)
    return Image("i", "i", RootfsSource(machine=False, layers=(tmp_path,)), ImageConfig(user=user))


def pod(**context: object) -> Object:
    metadata = {"name": "p", "namespace": "n", "uid": "u"}
    return {"metadata": metadata, "spec": {"securityContext": context}}


@pytest.mark.parametrize(
    ("user", "context", "expected"),
    [
        ("", {}, (0, 0, [0])),
        ("ann", {}, (100, 200, [200, 300])),
        ("100", {}, (100, 200, [200, 300])),
        ("ann:team", {}, (100, 300, [300])),
        ("7:8", {}, (7, 8, [8])),
        ("ann", {"runAsUser": 9}, (9, 0, [0])),
        ("ann", {"runAsGroup": 5}, (100, 5, [5, 300])),
        ("", {"runAsUser": 100, "supplementalGroups": [1], "fsGroup": 2}, (100, 200, [1, 2, 200, 300])),
        ("", {"runAsUser": 100, "supplementalGroupsPolicy": "Strict"}, (100, 200, [200])),
    ],
)
def test_users_and_groups(tmp_path: Path, user: str, context: Object, expected: tuple[int, int, list[int]]) -> None:
    chosen = container_user(pod(**context), {"name": "c"}, image_of(tmp_path, user))
    assert (chosen["uid"], chosen["gid"], chosen["groups"]) == expected


@pytest.mark.parametrize("user", ["nobody-knows", "²", "9" * 11, "ann:unknown"])
def test_unknown_users_and_groups_are_refused(tmp_path: Path, user: str) -> None:
    with pytest.raises(CreateContainerConfigError, match="unable to find"):
        container_user(pod(), {"name": "c"}, image_of(tmp_path, user))


def test_a_named_user_cannot_be_verified_as_non_root(tmp_path: Path) -> None:
    with pytest.raises(CreateContainerConfigError, match=r"image has non-numeric user \(ann\), cannot verify"):
        container_user(pod(runAsNonRoot=True), {"name": "c"}, image_of(tmp_path, "ann"))


def test_links_and_other_files_in_the_image_are_not_read(tmp_path: Path) -> None:
    image, outside = image_of(tmp_path, ""), tmp_path / "outside"
    outside.write_text("root:x:0:0::/stolen:/bin/sh\n")
    passwd = tmp_path / "etc" / "passwd"
    passwd.unlink()
    passwd.symlink_to(outside)
    assert home_directory(image, 0) == "/"
    passwd.unlink()
    os.mkfifo(passwd)
    assert home_directory(image, 0) == "/"
    passwd.unlink()
    passwd.mkdir()
    assert home_directory(image, 0) == "/"
