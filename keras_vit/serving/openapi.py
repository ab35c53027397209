"""The description of the server's addresses, OpenAPI 3.1.

https://spec.openapis.org/oas/v3.1.1.html
"""

from typing import TYPE_CHECKING, Any

from keras_vit.version import __version__

if TYPE_CHECKING:
    from keras_vit.serving.service import ServingLimits

__all__ = ["openapi_document"]

BYTES = {"type": "string", "contentMediaType": "application/octet-stream"}
NUMBER = {"type": "integer", "minimum": 0}
TEXT = {"type": "string"}
REFUSALS = {
    "400": "There is no image, one cannot be decoded, or the body is damaged.",
    "408": "The request did not arrive in time.",
    "413": "Too many bytes, images or pixels.",
    "415": "Another content type.",
    "500": "The server failed.",
    "503": "It warms up, stops, or has enough to do; see Retry-After.",
    "504": "There was no answer in time.",
}
UNEXPLAINED = {"501": "The model has no attention to show."}
JSON = "application/json"
TOP = {
    "name": "top",
    "in": "query",
    "description": "How many classes to return per image.",
    "schema": {"type": "integer", "minimum": 1, "default": 5},
}


def openapi_document(name: str, limits: "ServingLimits") -> dict[str, Any]:
    """The document of `GET /openapi.json`.

    Args:
        name: what the model is called.
        limits: those of the server, which the descriptions name.
    """
    told = (
        f"Up to {limits.queue} images and {limits.body_mb:g} MiB per request, "
        f"{limits.megapixels:g} million pixels per image."
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"Image classification with {name}",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "."}],
        "paths": {
            **{
                f"/{name}": {"post": _post(name, told, *row)}
                for name, row in POSTS.items()
            },
            **{path: {"get": _get(*row)} for path, row in GETS.items()},
        },
        "components": {"schemas": SCHEMAS},
    }


def _post(operation, told, summary, schema, more):
    return {
        "operationId": operation,
        "summary": summary,
        "description": told,
        "parameters": [TOP],
        "requestBody": {"required": True, "content": BODIES},
        "responses": {
            "200": _answer(summary, JSON, _reference(schema)),
            **_refusals({**REFUSALS, **more}, "Error"),
        },
    }


def _get(operation, summary, kind, schema, refusals=None):
    return {
        "operationId": operation,
        "summary": summary,
        "responses": {
            "200": _answer(summary, kind, schema),
            **_refusals(refusals or {}, "Health"),
        },
    }


def _refusals(told, schema):
    return {
        status: _answer(told[status], JSON, _reference(schema))
        for status in sorted(told)
    }


def _answer(description, kind, schema):
    return {"description": description, "content": {kind: {"schema": schema}}}


def _reference(schema):
    return {"$ref": f"#/components/schemas/{schema}"}


def _record(required, **more):
    """An object of these fields, all of them there but for `more`."""
    return {
        "type": "object",
        "properties": {**required, **more},
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items):
    return {"type": "array", "items": items}


# Name of the address: summary, schema of its answer, refusals of its own.
POSTS = {
    "predict": ("Classify images.", "Predictions", {}),
    "explain": (
        "Classify one image and show the attention to it.",
        "Explanation",
        UNEXPLAINED,
    ),
}
# Address: name, summary, type and schema of its answer, refusals.
GETS = {
    "/model": ("model", "What is served.", JSON, _reference("Model")),
    "/health": (
        "health",
        "Whether it is ready.",
        JSON,
        _reference("Health"),
        {"503": "It warms up or stops."},
    ),
    "/metrics": ("metrics", "Numbers for Prometheus.", "text/plain", TEXT),
    "/": ("page", "A page to drop a picture on.", "text/html", TEXT),
    "/openapi.json": ("openapi", "This document.", JSON, {"type": "object"}),
}
BODIES = {
    "multipart/form-data": {
        "schema": {
            "type": "object",
            "properties": {"images": _list(BYTES)},
            "required": ["images"],
            "description": "Files, under any names of fields.",
        }
    },
    "image/*": {"schema": {}},
    "application/octet-stream": {"schema": {}},
    "application/json": {
        "schema": {
            "type": "object",
            "properties": {
                "images": {
                    "type": "array",
                    "items": {"type": "string", "contentEncoding": "base64"},
                    "minItems": 1,
                }
            },
            "required": ["images"],
        }
    },
}
CLASSES = _list(
    _record(
        {
            "class": TEXT,
            "probability": {"type": "number", "minimum": 0, "maximum": 1},
        }
    )
)
NAME = {
    "type": ["string", "null"],
    "description": "The name of its file in a form.",
}
PICTURE = _record(
    {
        "source": {"type": "string", "description": "A data URI."},
        "small": {
            "type": "boolean",
            "description": "Whether to draw it with visible pixels.",
        },
    }
)
SCHEMAS = {
    "Predictions": _record(
        {
            "model": TEXT,
            "predictions": _list(
                _record(
                    {
                        "image": {
                            **NUMBER,
                            "description": "Its position in the request.",
                        },
                        "name": NAME,
                        "classes": CLASSES,
                    }
                )
            ),
        }
    ),
    "Explanation": _record(
        {
            "model": TEXT,
            "classes": CLASSES,
            "grid": {
                **_list(NUMBER),
                "description": "Rows and columns of patches.",
            },
            "rollout": {
                **_list(_list({"type": "number", "minimum": 0, "maximum": 1})),
                "description": "Attention rollout, 1 where it is largest.",
            },
            "picture": _reference("Picture"),
            "overlay": _reference("Picture"),
            "layers": _list(_reference("Picture")),
        }
    ),
    "Picture": PICTURE,
    "Model": _record(
        {
            "model": TEXT,
            "image_size": {
                **_list(NUMBER),
                "description": "Height and width in pixels.",
            },
            "channels": NUMBER,
            "num_classes": NUMBER,
            "explains": {"type": "boolean"},
            "images_per_request": NUMBER,
            "bytes_per_request": NUMBER,
            "pixels_per_image": NUMBER,
            "version": TEXT,
        }
    ),
    "Health": _record(
        {"status": {"enum": ["warming up", "ready", "stopping"]}}
    ),
    "Error": _record(
        {
            "error": _record(
                {"status": NUMBER, "message": TEXT},
                images=_list(
                    _record({"image": NUMBER, "name": NAME, "message": TEXT})
                ),
            )
        }
    ),
}
