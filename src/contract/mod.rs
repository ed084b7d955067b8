//! The contract: what `proto/` defines, as Rust types and as descriptors, and the names and
//! numbers that the protocol fixes outside of it.

pub mod codec;
pub mod fault;
#[cfg(feature = "server")]
pub mod json;
pub mod wkt;

/// The package `lf.a2a.v1`: A2A 1.0.
#[allow(
    missing_docs,
    deprecated,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::clone_on_ref_ptr,
    clippy::doc_markdown,
    clippy::map_err_ignore,
    clippy::too_long_first_doc_paragraph,
    clippy::too_many_lines,
    clippy::wildcard_enum_match_arm,
    reason = "generated code"
)]
pub mod v1 {
    tonic::include_proto!("lf.a2a.v1");
    #[cfg(feature = "server")]
    include!(concat!(env!("OUT_DIR"), "/lf.a2a.v1.serde.rs"));
}

/// The package `a2ad.page.v1`: the inside of page tokens.
pub mod page {
    tonic::include_proto!("a2ad.page.v1");
}

/// Every file of the contract and all that it imports, as an encoded
/// `google.protobuf.FileDescriptorSet`, custom options included.
pub const DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/a2ad.descriptor.bin"));

/// The header, metadata key or query parameter that names the protocol version.
pub const A2A_VERSION: &str = "a2a-version";

/// The header or metadata key that names the extensions in use.
pub const A2A_EXTENSIONS: &str = "a2a-extensions";

/// The extension by which a stream can be resumed.
///
/// A client that names it in `A2A-Extensions` gets
/// the generation of each event as the `id:` of its server-sent event, and goes on after the one that
/// it names in `Last-Event-ID` of a SubscribeToTask, without a snapshot, also once the task has ended.
pub const CURSOR_EXTENSION: &str = "https://a2ad.dev/extensions/cursor/v1";

/// The extension that tells when what has ended is deleted. Its parameters are its content; nobody
/// needs to name it.
pub const RETENTION_EXTENSION: &str = "https://a2ad.dev/extensions/retention/v1";

/// The protocol version spoken here. Patch numbers play no part in it.
pub const PROTOCOL_VERSION: &str = "1.0";

/// The `domain` of every `google.rpc.ErrorInfo`.
pub const ERROR_DOMAIN: &str = "a2a-protocol.org";

impl v1::TaskState {
    /// Whether a task in this state has ended for good.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Canceled | Self::Rejected => true,
            Self::Unspecified
            | Self::Submitted
            | Self::Working
            | Self::InputRequired
            | Self::AuthRequired => false,
        }
    }

    /// Whether a task in this state waits for something from outside.
    #[must_use]
    pub fn is_interrupted(self) -> bool {
        match self {
            Self::InputRequired | Self::AuthRequired => true,
            Self::Unspecified
            | Self::Submitted
            | Self::Working
            | Self::Completed
            | Self::Failed
            | Self::Canceled
            | Self::Rejected => false,
        }
    }
}
