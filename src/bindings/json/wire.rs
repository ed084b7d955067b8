//! Messages from JSON, with refusals in the protocol's words.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::bindings::{Misfit, Refusal};
use crate::contract::fault;
use crate::contract::json::{self, JsonError, Kind};
use crate::domain::Error;

/// A message from its JSON.
pub(crate) fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, Refusal> {
    json::from_slice(text).map_err(refusal)
}

/// A message from parameters.
pub(crate) fn read_object<T: DeserializeOwned>(object: Map<String, Value>) -> Result<T, Refusal> {
    json::from_value(Value::Object(object)).map_err(refusal)
}

/// The JSON of a message.
pub(crate) fn write<T: serde::Serialize>(message: &T) -> Result<Vec<u8>, Error> {
    json::to_vec(message).map_err(Error::internal)
}

fn refusal(error: JsonError) -> Refusal {
    match error.kind {
        Kind::Syntax => {
            let text = format!("{}: {}", fault::INVALID_JSON.text, error.problem);
            Misfit::new(fault::INVALID_JSON, text).into()
        }
        Kind::Shape => {
            let path = if error.path.is_empty() { "request".to_owned() } else { error.path };
            Error::invalid(path, error.problem).into()
        }
    }
}
