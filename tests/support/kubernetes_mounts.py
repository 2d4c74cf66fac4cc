"""What a container finds mounted, as a kubelet makes it: a script for namespaces that are its own.

Secrets and config maps are links on a read-only file system, folders of the pod are writable for everybody, and
nothing but volumes can be written.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support.checkout import HOLD, SHOW

#: Where mount points that this machine does not have are made, on a layer above its root.
_ROOT = "/run/image"
_LAYER = (
    "mkdir /run/up /run/up/made /run/up/work " + _ROOT,
    f"mount -t overlay -o lowerdir=/,upperdir=/run/up/made,workdir=/run/up/work overlay {_ROOT}",
    *(f"mount --rbind /{name} {_ROOT}/{name}" for name in ("proc", "dev", "sys")),
    f"mount -t tmpfs -o mode=755 tmpfs {_ROOT}/run",
)
_BARE = "exec {chroot}setpriv --bounding-set=-all --inh-caps=-all --no-new-privs"

Find = Callable[[str, str], dict[str, Any] | None]


def folders_of(pod: Mapping[str, Any], folder: Path, find: Find) -> dict[str, Path] | None:
    """A folder of this machine for each volume, by name; None while an object for one of them is missing."""
    found: dict[str, Path] = {}
    for volume in pod["spec"].get("volumes", []):
        name = volume["name"]
        at = folder / "volumes" / name
        if "hostPath" in volume:
            found[name] = Path(volume["hostPath"]["path"])
            continue
        if "persistentVolumeClaim" in volume:
            claim = find("persistentvolumeclaims", volume["persistentVolumeClaim"]["claimName"])
            real = find("persistentvolumes", claim["spec"].get("volumeName", "")) if claim else None
            if real is None:
                return None
            found[name] = Path(real["spec"]["hostPath"]["path"])
            continue
        for kind, key, of in (("secret", "secretName", "secrets"), ("configMap", "name", "configmaps")):
            if kind in volume:
                source = find(of, volume[kind][key])
                if source is None:
                    return None
                files = source.get("data") or {}
                plain = {one: base64.b64decode(text) for one, text in files.items()} if kind == "secret" else {}
                plain = plain or {one: text.encode() for one, text in files.items()}
                _write_links(at, plain, volume[kind].get("defaultMode", 0o644))
        if "emptyDir" in volume and not at.exists():
            at.mkdir(parents=True)
            at.chmod(0o777)
        found[name] = at
    return found


def _write_links(at: Path, files: Mapping[str, bytes], mode: int) -> None:
    """Files by way of two links, as Kubernetes changes them all at once."""
    if at.exists():
        return
    (at / "..1").mkdir(parents=True)
    (at / "..data").symlink_to("..1")
    for name, text in files.items():
        (at / "..1" / name).write_bytes(text)
        (at / "..1" / name).chmod(mode)
        (at / name).symlink_to(f"..data/{name}")


def script(pod: Mapping[str, Any], folders: Mapping[str, Path], hosts: Mapping[str, str]) -> str:
    """Mounts everything, then runs its arguments; `hosts`: names and addresses, for want of a DNS."""
    [container] = pod["spec"]["containers"]
    lines = [*HOLD, "mount --make-rprivate /", "mount -t tmpfs -o mode=755 tmpfs /run"]
    targets = [_place(mount) for mount in container.get("volumeMounts", ())]
    is_layered = any(not Path(one).exists() and not one.startswith("/run/") for one in targets)
    root = _ROOT if is_layered else ""
    lines += _LAYER if is_layered else ()
    if pod["spec"].get("hostname"):
        lines.append(f"hostname {shlex.quote(pod['spec']['hostname'])}")
    mounts = [*enumerate(sorted(container.get("volumeMounts", ()), key=lambda one: len(one["mountPath"])))]
    # Held first: what is mounted at /tmp hides where the folders of pods are.
    for number, mount in mounts:
        source, held = folders[mount["name"]], f"/run/held-{number}"
        # A link is followed once, as kubelets do it for a part of a volume.
        source = (source / mount["subPath"]).resolve() if mount.get("subPath") else source
        lines.append(f"{'touch' if mount.get('subPath') else 'mkdir'} {held}")
        lines.append(f"mount --bind {shlex.quote(str(source))} {held}")
    for number, mount in mounts:
        at = shlex.quote(root + _place(mount))
        lines += [f"mkdir -p $(dirname {at})", f"touch {at}"] if mount.get("subPath") else [f"mkdir -p {at}"]
        lines.append(f"mount --bind /run/held-{number} {at}")
        is_fixed = not {"emptyDir", "hostPath", "persistentVolumeClaim"}.intersection(_volume(pod, mount["name"]))
        if mount.get("readOnly") or is_fixed:
            lines.append(f"mount -o remount,bind,ro {at}")
        lines.append(f"umount /run/held-{number}")
    if "/tmp" in targets:
        lines += [line.format(root=root) for line in SHOW]
    if hosts:
        text = "".join(f"{address} {name}\n" for name, address in hosts.items())
        lines.append(f"cat /etc/hosts > /run/hosts && printf %s {shlex.quote(text)} >> /run/hosts")
        lines.append(f"mount --bind /run/hosts {root}/etc/hosts")
    lines += [f"mount -o remount,{'' if is_layered else 'bind,'}ro {root or '/'}", "cd /"]
    bare = _BARE.format(chroot=f"chroot {_ROOT} " if is_layered else "")
    return "\n".join([*(f"{line} || exit 125" for line in lines), f'{bare} -- "$@"'])


def _place(mount: Mapping[str, Any]) -> str:
    """Not by way of a link from the root, which leads out of an image."""
    at: str = mount["mountPath"]
    return at.removeprefix("/var") if at.startswith("/var/run/") else at


def _volume(pod: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    [found] = [one for one in pod["spec"]["volumes"] if one["name"] == name]
    return dict(found)
