"""Makes the script that mounts a container's volumes in its namespaces, as a kubelet does.

Secrets and config maps are links on a read-only file system. Folders of the pod are writable by everyone. Only volumes
can be written.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support.checkout import HOLD, SHOW

#: Folder of a layer above the root, with the mount points that this machine does not have.
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
    """Return a folder of this machine for each volume; None while the object of a volume is missing."""
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
    """Write files behind two links, so that all of them can be changed atomically, as Kubernetes does."""
    if at.exists():
        return
    (at / "..1").mkdir(parents=True)
    (at / "..data").symlink_to("..1")
    for name, text in files.items():
        (at / "..1" / name).write_bytes(text)
        (at / "..1" / name).chmod(mode)
        (at / name).symlink_to(f"..data/{name}")


def script(pod: Mapping[str, Any], folders: Mapping[str, Path], hosts: Mapping[str, str]) -> str:
    """Return a script that mounts all volumes and runs its arguments; `hosts` maps names to addresses."""
    [container] = pod["spec"]["containers"]
    lines = [*HOLD, "mount --make-rprivate /", "mount -t tmpfs -o mode=755 tmpfs /run"]
    targets = [_place(mount) for mount in container.get("volumeMounts", ())]
    is_layered = any(not Path(one).exists() and not one.startswith("/run/") for one in targets)
    root = _ROOT if is_layered else ""
    lines += _LAYER if is_layered else ()
    if pod["spec"].get("hostname"):
        lines.append(f"hostname {shlex.quote(pod['spec']['hostname'])}")
    mounts = [*enumerate(sorted(container.get("volumeMounts", ()), key=lambda one: len(one["mountPath"])))]
    # Mount the folders elsewhere first, because a mount at /tmp hides the folders of pods.
    for number, mount in mounts:
        source, held = folders[mount["name"]], f"/run/held-{number}"
        # Resolve links once, as kubelets do for a subPath.
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
    """Return the path of a mount without the link /var/run, which leads out of the image."""
    at: str = mount["mountPath"]
    return at.removeprefix("/var") if at.startswith("/var/run/") else at


def _volume(pod: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    [found] = [one for one in pod["spec"]["volumes"] if one["name"] == name]
    return dict(found)
