//! Requests as JSON bindings bring them: a body or parameters, and what the path adds.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::bindings::Refusal;
use crate::bindings::json::wire;
use crate::contract::v1;
use crate::domain::{Error, Violation};

/// What a request message is read from.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    pub(crate) source: Source<'a>,
    /// Fields that came otherwise too, by their proto names.
    pub(crate) fields: Vec<(&'static str, String)>,
}

/// Where most of a request is.
#[derive(Debug)]
pub(crate) enum Source<'a> {
    /// In a body; an empty one is an empty message.
    Body(&'a [u8]),
    /// In parameters.
    Object(Map<String, Value>),
}

impl Input<'_> {
    /// The request. What comes twice must be the same: a silent choice between two tenants would
    /// be a hole (AMB-15, REST-12).
    pub(crate) fn read<T: DeserializeOwned + Default + Fields>(self) -> Result<T, Refusal> {
        let mut message: T = match self.source {
            Source::Body(body) if body.trim_ascii().is_empty() => T::default(),
            Source::Body(body) => wire::read(body)?,
            Source::Object(object) => wire::read_object(object)?,
        };
        let mut problems = Vec::new();
        for (name, value) in self.fields {
            match message.field(name) {
                None => return Err(Error::internal(format!("no field {name}")).into()),
                Some(field) if field.is_empty() || *field == value => *field = value,
                Some(_) => {
                    let problem = "differs from the one in the path or the query; say it once";
                    problems.push(Violation::new(name, problem));
                }
            }
        }
        if problems.is_empty() { Ok(message) } else { Err(Error::Invalid(problems).into()) }
    }
}

/// The fields that paths can hold.
pub(crate) trait Fields {
    /// The field with this proto name.
    fn field(&mut self, name: &str) -> Option<&mut String>;
}

macro_rules! fields {
    ($($kind:ident: $($name:ident)*;)*) => {$(
        impl Fields for v1::$kind {
            fn field(&mut self, name: &str) -> Option<&mut String> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)*
                    _ => None,
                }
            }
        }
    )*};
}

fields! {
    SendMessageRequest: tenant;
    GetTaskRequest: tenant id;
    ListTasksRequest: tenant;
    CancelTaskRequest: tenant id;
    SubscribeToTaskRequest: tenant id;
    TaskPushNotificationConfig: tenant task_id;
    GetTaskPushNotificationConfigRequest: tenant task_id id;
    ListTaskPushNotificationConfigsRequest: tenant task_id;
    DeleteTaskPushNotificationConfigRequest: tenant task_id id;
    GetExtendedAgentCardRequest: tenant;
}
