//! The operations of the contract, by name.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, MessageDescriptor, MethodDescriptor};

use crate::auth::Class;
use crate::contract::DESCRIPTOR_SET;

/// What a caller can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// SendMessage.
    SendMessage,
    /// SendStreamingMessage.
    SendStreamingMessage,
    /// GetTask.
    GetTask,
    /// ListTasks.
    ListTasks,
    /// CancelTask.
    CancelTask,
    /// SubscribeToTask.
    SubscribeToTask,
    /// `CreateTaskPushNotificationConfig`.
    CreatePushConfig,
    /// `GetTaskPushNotificationConfig`.
    GetPushConfig,
    /// `ListTaskPushNotificationConfigs`.
    ListPushConfigs,
    /// `DeleteTaskPushNotificationConfig`.
    DeletePushConfig,
    /// GetExtendedAgentCard.
    GetExtendedAgentCard,
}

const NAMES: [(&str, Operation); 11] = [
    ("SendMessage", Operation::SendMessage),
    ("SendStreamingMessage", Operation::SendStreamingMessage),
    ("GetTask", Operation::GetTask),
    ("ListTasks", Operation::ListTasks),
    ("CancelTask", Operation::CancelTask),
    ("SubscribeToTask", Operation::SubscribeToTask),
    ("CreateTaskPushNotificationConfig", Operation::CreatePushConfig),
    ("GetTaskPushNotificationConfig", Operation::GetPushConfig),
    ("ListTaskPushNotificationConfigs", Operation::ListPushConfigs),
    ("DeleteTaskPushNotificationConfig", Operation::DeletePushConfig),
    ("GetExtendedAgentCard", Operation::GetExtendedAgentCard),
];

/// The contract's service, by which routes and query parameters are known.
static METHODS: LazyLock<Vec<(Operation, MethodDescriptor)>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(DESCRIPTOR_SET).expect("it was encoded by the build");
    let service =
        pool.get_service_by_name("lf.a2a.v1.A2AService").expect("it is part of the contract");
    let known = |method: MethodDescriptor| Some((Operation::named(method.name())?, method));
    service.methods().filter_map(known).collect()
});

impl Operation {
    /// The operation that the contract calls by this name, letter by letter.
    #[must_use]
    pub(crate) fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, operation)| *operation)
    }

    /// The contract's name.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// Every operation, in the order of the contract, with its descriptor.
    pub(super) fn methods() -> &'static [(Self, MethodDescriptor)] {
        &METHODS
    }

    /// What the request of this operation is made of.
    pub(super) fn input(self) -> Option<MessageDescriptor> {
        METHODS.iter().find(|(known, _)| *known == self).map(|(_, method)| method.input())
    }

    /// Which right it takes.
    pub(crate) fn class(self) -> Class {
        match self {
            Self::SendMessage | Self::SendStreamingMessage => Class::Send,
            Self::GetTask | Self::ListTasks | Self::SubscribeToTask => Class::Read,
            Self::CancelTask => Class::Cancel,
            Self::CreatePushConfig
            | Self::GetPushConfig
            | Self::ListPushConfigs
            | Self::DeletePushConfig => Class::Push,
            Self::GetExtendedAgentCard => Class::Card,
        }
    }

    /// Whether the answer is a stream.
    #[must_use]
    pub(crate) fn streams(self) -> bool {
        matches!(self, Self::SendStreamingMessage | Self::SubscribeToTask)
    }
}
