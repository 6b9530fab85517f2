"""Download of jars with their run-time dependencies, by Maven if it is installed, else by the Ivy in pyspark's jars.

Both use the repositories of their own configuration (Maven's settings.xml, Ivy's defaults), which also sets mirrors
and proxies. This module contains no host name.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from jobs.adapters.java.home import find_java
from jobs.core.errors import MissingError

_TIMEOUT_SECONDS = 900
_TAIL_LINES = 15

Resolver = Callable[["JarSet", Path], None]


@dataclass(frozen=True, slots=True)
class Artifact:
    group: str
    name: str
    version: str
    classifier: str = ""
    """The variant of the jar, such as `shaded`."""


@dataclass(frozen=True, slots=True)
class JarSet:
    """The jars to download; with `transitive`, also their run-time dependencies, without those `excluded`."""

    title: str
    artifacts: tuple[Artifact, ...]
    transitive: bool
    excluded: tuple[tuple[str, str], ...] = ()
    """Group and name of artifacts that are left out."""
    argument: str | None = None
    """The argument of the command that downloads the set; None for sets of tests."""

    @property
    def download_command(self) -> str:
        """The command that downloads the set, between backticks, for messages."""
        if self.argument is None:
            return "the same command"
        return f"`python -m jobs.adapters.java.jars {self.argument}`"


def choose_resolver(ivy_jars: Iterable[Path]) -> tuple[str, Resolver]:
    """Return the tool's name, for messages, and the function that downloads into a folder."""
    mvn = shutil.which("mvn")
    if mvn:
        return "mvn", lambda request, folder: _resolve_with_mvn(mvn, request, folder)
    return "Ivy (a minute or two)", lambda request, folder: _resolve_with_ivy(ivy_jars, request, folder)


def _resolve_with_mvn(mvn: str, request: JarSet, folder: Path) -> None:
    pom = folder.parent / "pom.xml"
    pom.write_text(_pom(request))
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    if not request.transitive:
        goal.append("-DexcludeTransitive=true")
    _run([mvn, "-q", "-B", "-Dstyle.color=never", "-f", str(pom), *goal], request)


def _pom(request: JarSet) -> str:
    exclusions = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{name}</artifactId></exclusion>"
        for group, name in request.excluded
    )
    dependencies = "".join(
        f"<dependency><groupId>{it.group}</groupId><artifactId>{it.name}</artifactId><version>{it.version}</version>"
        f"{_maven_classifier(it)}<exclusions>{exclusions}</exclusions></dependency>"
        for it in request.artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>surveyor</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _maven_classifier(it: Artifact) -> str:
    """Return the element of a classifier; with an empty one Maven copies nothing and reports no error."""
    return f"<classifier>{it.classifier}</classifier>" if it.classifier else ""


def _resolve_with_ivy(ivy_jars: Iterable[Path], request: JarSet, folder: Path) -> None:
    module = folder.parent / "ivy.xml"
    module.write_text(_ivy_module(request))
    # a separate cache, because Ivy does not lock the shared one and two processes would corrupt it
    ivy = ["org.apache.ivy.Main", "-warn", "-cache", str(folder.parent / "ivy"), "-ivy", str(module)]
    retrieve = ["-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]", "-types", "jar", "bundle"]
    _run([str(find_java()), "-cp", class_path(ivy_jars), *ivy, *retrieve], request)


def _ivy_module(request: JarSet) -> str:
    transitive = str(request.transitive).lower()
    dependencies = "".join(
        f'<dependency org="{it.group}" name="{it.name}" rev="{it.version}" transitive="{transitive}">'
        f"{_ivy_classifier(it)}</dependency>"
        for it in request.artifacts
    )
    excluded = "".join(f'<exclude org="{group}" module="{name}"/>' for group, name in request.excluded)
    # the configuration `default` of a Maven module is its jar with run-time dependencies, without sources and tests
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="surveyor" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f'<dependencies defaultconf="default->default">{dependencies}{excluded}</dependencies></ivy-module>'
    )


def _ivy_classifier(it: Artifact) -> str:
    return f'<artifact name="{it.name}" type="jar" m:classifier="{it.classifier}"/>' if it.classifier else ""


def class_path(jars: Iterable[Path]) -> str:
    """Return a class path of the jars' folders; pyspark's 250 file names would come near the limit of an argument."""
    return ":".join(sorted({f"{jar.parent}/*" for jar in jars}))


def _run(command: list[str], request: JarSet) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - mvn from PATH or the checked Java; the arguments are ours
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failure(command, request, str(error)) from error
    if done.returncode != 0:
        raise _failure(command, request, done.stdout)


def _failure(command: list[str], request: JarSet, output: str) -> MissingError:
    lines = [line for line in output.splitlines() if line.strip()]
    tail = "\n  ".join(lines[-_TAIL_LINES:])
    return MissingError(
        f"{command[0]} could not download the {request.title} jars; the end of its output:\n  {tail}\n"
        "They are needed once. With the network reachable (a mirror or proxy goes into Maven's settings.xml), "
        f"run {request.download_command} again."
    )
