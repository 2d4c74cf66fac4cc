from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

ALL: Grouping
BOOLEAN: Type
BYTE: Type
BYTE_ARRAY: Type
CPP_SHARED_OBJECT: ComponentObjectSpec
CUSTOM: Grouping
DESCRIPTOR: _descriptor.FileDescriptor
DIRECT: Grouping
DOUBLE: Type
FIELDS: Grouping
FLOAT: Type
INTEGER: Type
JAVA_CLASS_NAME: ComponentObjectSpec
JAVA_OBJECT: CustomGroupingObjectType
JAVA_SERIALIZED_OBJECT: ComponentObjectSpec
JAVA_SERIALIZED_VALUE: ConfigValueType
KILLED: TopologyState
LONG: Type
LOWEST: Grouping
NONE: Grouping
OBJECT: Type
PAUSED: TopologyState
PYTHON_CLASS_NAME: ComponentObjectSpec
PYTHON_OBJECT: CustomGroupingObjectType
PYTHON_SERIALIZED_VALUE: ConfigValueType
RUNNING: TopologyState
SHORT: Type
SHUFFLE: Grouping
STRING: Type
STRING_VALUE: ConfigValueType

class Bolt(_message.Message):
    __slots__ = ["comp", "inputs", "outputs"]
    COMP_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    comp: Component
    inputs: _containers.RepeatedCompositeFieldContainer[InputStream]
    outputs: _containers.RepeatedCompositeFieldContainer[OutputStream]
    def __init__(self, comp: _Optional[_Union[Component, _Mapping]] = ..., inputs: _Optional[_Iterable[_Union[InputStream, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[OutputStream, _Mapping]]] = ...) -> None: ...

class Component(_message.Message):
    __slots__ = ["asks_readiness", "asynchronous", "class_name", "config", "cpp_class_info", "name", "serialized_object", "spec", "traits"]
    ASKS_READINESS_FIELD_NUMBER: _ClassVar[int]
    ASYNCHRONOUS_FIELD_NUMBER: _ClassVar[int]
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    CPP_CLASS_INFO_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SERIALIZED_OBJECT_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    TRAITS_FIELD_NUMBER: _ClassVar[int]
    asks_readiness: bool
    asynchronous: bool
    class_name: str
    config: Config
    cpp_class_info: str
    name: str
    serialized_object: bytes
    spec: ComponentObjectSpec
    traits: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., spec: _Optional[_Union[ComponentObjectSpec, str]] = ..., class_name: _Optional[str] = ..., serialized_object: _Optional[bytes] = ..., cpp_class_info: _Optional[str] = ..., config: _Optional[_Union[Config, _Mapping]] = ..., asks_readiness: bool = ..., asynchronous: bool = ..., traits: _Optional[_Iterable[str]] = ...) -> None: ...

class Config(_message.Message):
    __slots__ = ["kvs"]
    class KeyValue(_message.Message):
        __slots__ = ["key", "serialized_value", "type", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        SERIALIZED_VALUE_FIELD_NUMBER: _ClassVar[int]
        TYPE_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        serialized_value: bytes
        type: ConfigValueType
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ..., serialized_value: _Optional[bytes] = ..., type: _Optional[_Union[ConfigValueType, str]] = ...) -> None: ...
    KVS_FIELD_NUMBER: _ClassVar[int]
    kvs: _containers.RepeatedCompositeFieldContainer[Config.KeyValue]
    def __init__(self, kvs: _Optional[_Iterable[_Union[Config.KeyValue, _Mapping]]] = ...) -> None: ...

class InputStream(_message.Message):
    __slots__ = ["custom_grouping_object", "grouping_fields", "gtype", "prefer_local", "stream", "type"]
    CUSTOM_GROUPING_OBJECT_FIELD_NUMBER: _ClassVar[int]
    GROUPING_FIELDS_FIELD_NUMBER: _ClassVar[int]
    GTYPE_FIELD_NUMBER: _ClassVar[int]
    PREFER_LOCAL_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    custom_grouping_object: bytes
    grouping_fields: StreamSchema
    gtype: Grouping
    prefer_local: bool
    stream: StreamId
    type: CustomGroupingObjectType
    def __init__(self, stream: _Optional[_Union[StreamId, _Mapping]] = ..., gtype: _Optional[_Union[Grouping, str]] = ..., grouping_fields: _Optional[_Union[StreamSchema, _Mapping]] = ..., custom_grouping_object: _Optional[bytes] = ..., type: _Optional[_Union[CustomGroupingObjectType, str]] = ..., prefer_local: bool = ...) -> None: ...

class OutputStream(_message.Message):
    __slots__ = ["arrow_schema", "direct", "schema", "stream"]
    ARROW_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    DIRECT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    arrow_schema: bytes
    direct: bool
    schema: StreamSchema
    stream: StreamId
    def __init__(self, stream: _Optional[_Union[StreamId, _Mapping]] = ..., schema: _Optional[_Union[StreamSchema, _Mapping]] = ..., direct: bool = ..., arrow_schema: _Optional[bytes] = ...) -> None: ...

class Spout(_message.Message):
    __slots__ = ["comp", "outputs"]
    COMP_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    comp: Component
    outputs: _containers.RepeatedCompositeFieldContainer[OutputStream]
    def __init__(self, comp: _Optional[_Union[Component, _Mapping]] = ..., outputs: _Optional[_Iterable[_Union[OutputStream, _Mapping]]] = ...) -> None: ...

class StreamId(_message.Message):
    __slots__ = ["component_name", "id"]
    COMPONENT_NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    component_name: str
    id: str
    def __init__(self, id: _Optional[str] = ..., component_name: _Optional[str] = ...) -> None: ...

class StreamSchema(_message.Message):
    __slots__ = ["keys"]
    class KeyType(_message.Message):
        __slots__ = ["key", "type"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        TYPE_FIELD_NUMBER: _ClassVar[int]
        key: str
        type: Type
        def __init__(self, key: _Optional[str] = ..., type: _Optional[_Union[Type, str]] = ...) -> None: ...
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[StreamSchema.KeyType]
    def __init__(self, keys: _Optional[_Iterable[_Union[StreamSchema.KeyType, _Mapping]]] = ...) -> None: ...

class Topology(_message.Message):
    __slots__ = ["bolts", "id", "name", "spouts", "state", "topology_config"]
    BOLTS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPOUTS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_CONFIG_FIELD_NUMBER: _ClassVar[int]
    bolts: _containers.RepeatedCompositeFieldContainer[Bolt]
    id: str
    name: str
    spouts: _containers.RepeatedCompositeFieldContainer[Spout]
    state: TopologyState
    topology_config: Config
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., spouts: _Optional[_Iterable[_Union[Spout, _Mapping]]] = ..., bolts: _Optional[_Iterable[_Union[Bolt, _Mapping]]] = ..., state: _Optional[_Union[TopologyState, str]] = ..., topology_config: _Optional[_Union[Config, _Mapping]] = ...) -> None: ...

class ComponentObjectSpec(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class Grouping(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class CustomGroupingObjectType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class TopologyState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ConfigValueType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
