"""Name every way edgeinfer can fail, with the exit code and HTTP status each one means.

EdgeInferError
├── ModelFormatError          a model file is broken, truncated or contradicts itself
│   └── MissingTensorError    the file lacks tensors its architecture needs, or has them misshapen
├── UnsupportedModelError     the file is sound but needs something edgeinfer does not have
├── SessionError              a saved session is broken, or of another model or kind of keys
├── ModelNotFoundError        no file, catalogue name or repository answers to the given name
├── InvalidParameterError     a caller's value is outside its range
│   ├── ContextOverflowError  a prompt does not fit the context
│   └── GrammarError          a grammar or schema is broken, too large, or allows nothing further
├── TemplateError             a chat template is missing, broken, or refused the conversation
├── ResourceError             memory, disk or the file itself gave out
├── BackendError              the compiled kernels are missing or failed
├── NonFiniteError            the model holds or computed NaN or infinity
├── ModelClosedError          the model was used after close()
└── CancelledError            the caller asked to stop

A message says where, what was found, what is allowed, then the way out.
"""


class EdgeInferError(Exception):
    """Root of the tree; `exit_code` is the CLI's, `http_status` the server's answer."""

    exit_code = 1
    http_status = 500


class ModelFormatError(EdgeInferError):
    exit_code = 3
    http_status = 400


class MissingTensorError(ModelFormatError):
    pass


class UnsupportedModelError(EdgeInferError):
    exit_code = 3
    http_status = 400


class SessionError(EdgeInferError):
    exit_code = 3
    http_status = 400


class ModelNotFoundError(EdgeInferError):
    exit_code = 3
    http_status = 404


class InvalidParameterError(EdgeInferError):
    exit_code = 2
    http_status = 400


class ContextOverflowError(InvalidParameterError):
    pass


class GrammarError(InvalidParameterError):
    pass


class TemplateError(EdgeInferError):
    exit_code = 3
    http_status = 400


class ResourceError(EdgeInferError):
    exit_code = 4
    http_status = 503


class BackendError(EdgeInferError):
    pass


class NonFiniteError(EdgeInferError):
    pass


class ModelClosedError(EdgeInferError, RuntimeError):
    pass


class CancelledError(EdgeInferError):
    exit_code = 130
    http_status = 499
