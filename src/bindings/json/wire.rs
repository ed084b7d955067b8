//! Messages to JSON and back.

use prost::Message;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage, SerializeOptions};
use serde_json::{Map, Value};

use crate::bindings::{Misfit, Refusal};
use crate::contract::fault;
use crate::contract::wkt::Empty;
use crate::contract::{DESCRIPTOR_SET, v1};
use crate::domain::Error;

pub(crate) trait Wire: Message + Default {
    const NAME: &'static str;
}
macro_rules! wire { ($($t:ty = $n:literal),*) => { $(impl Wire for $t { const NAME: &'static str = $n; })* } }
wire!(
    v1::SendMessageRequest = "lf.a2a.v1.SendMessageRequest",
    v1::GetTaskRequest = "lf.a2a.v1.GetTaskRequest",
    v1::ListTasksRequest = "lf.a2a.v1.ListTasksRequest",
    v1::CancelTaskRequest = "lf.a2a.v1.CancelTaskRequest",
    v1::SubscribeToTaskRequest = "lf.a2a.v1.SubscribeToTaskRequest",
    v1::TaskPushNotificationConfig = "lf.a2a.v1.TaskPushNotificationConfig",
    v1::GetTaskPushNotificationConfigRequest = "lf.a2a.v1.GetTaskPushNotificationConfigRequest",
    v1::ListTaskPushNotificationConfigsRequest = "lf.a2a.v1.ListTaskPushNotificationConfigsRequest",
    v1::DeleteTaskPushNotificationConfigRequest =
        "lf.a2a.v1.DeleteTaskPushNotificationConfigRequest",
    v1::GetExtendedAgentCardRequest = "lf.a2a.v1.GetExtendedAgentCardRequest",
    v1::SendMessageResponse = "lf.a2a.v1.SendMessageResponse",
    v1::Task = "lf.a2a.v1.Task",
    v1::ListTasksResponse = "lf.a2a.v1.ListTasksResponse",
    v1::ListTaskPushNotificationConfigsResponse =
        "lf.a2a.v1.ListTaskPushNotificationConfigsResponse",
    v1::AgentCard = "lf.a2a.v1.AgentCard",
    v1::StreamResponse = "lf.a2a.v1.StreamResponse",
    Empty = "google.protobuf.Empty"
);

fn kind<T: Wire>() -> prost_reflect::MessageDescriptor {
    static POOL: std::sync::LazyLock<DescriptorPool> =
        std::sync::LazyLock::new(|| DescriptorPool::decode(DESCRIPTOR_SET).expect("own"));
    POOL.get_message_by_name(T::NAME).expect("own")
}

/// A message from its JSON.
pub(crate) fn read<T: Wire>(json: &[u8]) -> Result<T, Refusal> {
    let value: Value = serde_json::from_slice(json).map_err(|e| {
        Misfit::new(fault::INVALID_JSON, format!("{}: {e}", fault::INVALID_JSON.text))
    })?;
    value_to(value)
}

fn value_to<T: Wire>(value: Value) -> Result<T, Refusal> {
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let message = DynamicMessage::deserialize_with_options(kind::<T>(), value, &options)
        .map_err(|e| Error::invalid("request", e.to_string()))?;
    T::decode(message.encode_to_vec().as_slice()).map_err(|e| Error::internal(e).into())
}

/// A message from parameters.
pub(crate) fn read_object<T: Wire>(object: Map<String, Value>) -> Result<T, Refusal> {
    value_to(Value::Object(object))
}

/// The JSON of a message.
pub(crate) fn write<T: Wire>(message: &T) -> Result<Vec<u8>, Error> {
    let dynamic = DynamicMessage::decode(kind::<T>(), message.encode_to_vec().as_slice())
        .map_err(Error::internal)?;
    let mut out = serde_json::Serializer::new(Vec::new());
    dynamic.serialize_with_options(&mut out, &SerializeOptions::new()).map_err(Error::internal)?;
    Ok(out.into_inner())
}
