"""Validates manifests against the schemas that a Kubernetes cluster has.

``TFMINI_CRDS`` names a directory with the definitions of JobSet (`jobset.yaml`) and TFJob (`tfjob.yaml`), as their
projects publish them; the schemas of Kubernetes itself are in the package kubernetes-validate. A field that a schema
does not know is an error here; a cluster would drop it in silence.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml


def schema_of(kind: str, version: str) -> dict[str, Any]:
    """The strict schema of a custom resource."""
    definition = yaml.safe_load((Path(os.environ["TFMINI_CRDS"]) / f"{kind.lower()}.yaml").read_text())
    (found,) = [each for each in definition["spec"]["versions"] if each["name"] == version]
    schema = found["schema"]["openAPIV3Schema"]
    schema["properties"]["metadata"] = {}
    return strict(schema)


def strict(schema: Any) -> Any:
    """The schema without what only Kubernetes understands, and closed for unknown fields."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    found = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes") and key != "format"}
    for key in ("properties", "patternProperties"):
        if key in found:
            found[key] = {name: strict(each) for name, each in found[key].items()}
    for key in ("items", "additionalProperties", "allOf", "anyOf", "oneOf", "not"):
        if key in found:
            found[key] = strict(found[key])
    if "properties" in found and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found


def validate(found: dict[str, Any]) -> None:
    """Raises the error of the first field that is wrong."""
    import jsonschema
    import kubernetes_validate

    if found["apiVersion"] in ("v1", "batch/v1"):
        kubernetes_validate.validate(found, "1.29", strict=True)
        return
    jsonschema.validate(found, schema_of(found["kind"], found["apiVersion"].rpartition("/")[2]))
