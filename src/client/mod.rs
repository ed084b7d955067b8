//! Calling an A2A server over gRPC.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use a2ad::client::{Client, text_message};
//! use a2ad::contract::v1::SendMessageRequest;
//!
//! let mut client = Client::connect("http://127.0.0.1:50051").await?;
//! let request = SendMessageRequest { message: Some(text_message("hello")), ..Default::default() };
//! let answer = client.send_message(request).await?.into_inner();
//! println!("{answer:?}");
//! # Ok(())
//! # }
//! ```

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::contract::v1::a2a_service_client::A2aServiceClient;
use crate::contract::v1::{self, part::Content};
use crate::contract::{A2A_VERSION, PROTOCOL_VERSION};

/// The generated client, on a channel that names the protocol version in every call (CL-01).
pub type Client = A2aServiceClient<InterceptedService<Channel, Preamble>>;

/// The most that an answer may have: a task is never cut, so more than gRPC's usual 4 MiB.
const ANSWER_BYTES_MAX: usize = 68 << 20;

/// What every call says before its message.
#[derive(Debug, Clone)]
pub struct Preamble {
    version: MetadataValue<Ascii>,
    credential: Option<MetadataValue<Ascii>>,
}

impl Interceptor for Preamble {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert(A2A_VERSION, self.version.clone());
        if let Some(credential) = &self.credential {
            request.metadata_mut().insert("authorization", credential.clone());
        }
        Ok(request)
    }
}

impl Client {
    /// Connects to `http://host:port` or `https://host:port`.
    ///
    /// # Errors
    /// When the address cannot be reached.
    pub async fn connect(address: &str) -> Result<Self, tonic::transport::Error> {
        let channel = Endpoint::from_shared(address.to_owned())?.connect().await?;
        Ok(Self::over(channel, None))
    }

    /// Connects with a bearer credential, such as an API key. `None` if it cannot be a header.
    ///
    /// # Errors
    /// When the address cannot be reached.
    pub async fn connect_with(
        address: &str,
        credential: &str,
    ) -> Result<Option<Self>, tonic::transport::Error> {
        let channel = Endpoint::from_shared(address.to_owned())?.connect().await?;
        let Ok(mut value) = format!("Bearer {credential}").parse::<MetadataValue<Ascii>>() else {
            return Ok(None);
        };
        value.set_sensitive(true);
        Ok(Some(Self::over(channel, Some(value))))
    }

    /// Calls over a channel that was made elsewhere.
    #[must_use]
    pub fn over(channel: Channel, credential: Option<MetadataValue<Ascii>>) -> Self {
        let version = MetadataValue::from_static(PROTOCOL_VERSION);
        let service = InterceptedService::new(channel, Preamble { version, credential });
        A2aServiceClient::new(service).max_decoding_message_size(ANSWER_BYTES_MAX)
    }
}

/// A user's message of one text, with a fresh id (CL-13).
#[must_use]
pub fn text_message(text: &str) -> v1::Message {
    v1::Message {
        message_id: uuid::Uuid::now_v7().to_string(),
        role: v1::Role::User as i32,
        parts: vec![v1::Part {
            content: Some(Content::Text(text.to_owned())),
            ..Default::default()
        }],
        ..Default::default()
    }
}
