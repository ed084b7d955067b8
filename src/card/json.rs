//! A card in JSON.

use prost::Message as _;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor};
use serde_json::Value;

use crate::contract::{DESCRIPTOR_SET, v1};

pub(super) fn descriptor() -> Result<MessageDescriptor, String> {
    let pool = DescriptorPool::decode(DESCRIPTOR_SET).map_err(|error| error.to_string())?;
    pool.get_message_by_name("lf.a2a.v1.AgentCard").ok_or_else(|| "no AgentCard".to_owned())
}

pub(super) fn to_vec(card: &v1::AgentCard) -> Result<Vec<u8>, String> {
    let message = DynamicMessage::decode(descriptor()?, card.encode_to_vec().as_slice());
    serde_json::to_vec(&message.map_err(|error| error.to_string())?).map_err(|e| e.to_string())
}

pub(super) fn from_value(value: Value) -> Result<v1::AgentCard, String> {
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let message = DynamicMessage::deserialize_with_options(descriptor()?, value, &options)
        .map_err(|error| error.to_string())?;
    message.transcode_to().map_err(|error| error.to_string())
}

pub(super) fn to_value(card: &v1::AgentCard) -> Result<Value, String> {
    serde_json::from_slice(&to_vec(card)?).map_err(|error| error.to_string())
}
