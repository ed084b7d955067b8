//! Calling an A2A server over gRPC: the generated client, connected, with the protocol's version
//! and the caller's credentials on every call.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use a2ad::client::Connect;
//! use a2ad::contract::v1::ListTasksRequest;
//!
//! let mut client = Connect::to("http://127.0.0.1:50051").connect().await?;
//! let page = client.list_tasks(ListTasksRequest::default()).await?.into_inner();
//! # drop(page);
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};
use uuid::Uuid;

use crate::contract::v1::a2a_service_client::A2aServiceClient;
use crate::contract::{A2A_VERSION, PROTOCOL_VERSION, v1};

/// A connected client. Clones share one connection.
pub type Client = A2aServiceClient<InterceptedService<Channel, Headers>>;

/// A task may be larger than the 4 MiB that gRPC clients take by default.
const RECEIVE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where and how to connect.
#[derive(Debug, Clone)]
pub struct Connect {
    url: String,
    headers: Headers,
    authority_pem: Option<Vec<u8>>,
    within: Duration,
}

/// What every call carries beside its message.
#[derive(Clone)]
pub struct Headers {
    version: MetadataValue<Ascii>,
    authorization: Option<MetadataValue<Ascii>>,
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authorization = self.authorization.as_ref().map(|_| "(hidden)");
        f.debug_struct("Headers")
            .field("version", &self.version)
            .field("authorization", &authorization)
            .finish()
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// The credentials hold characters that no header may have.
    Credentials,
    /// The address cannot be used, or nobody answers there.
    Transport(tonic::transport::Error),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Credentials => "the key must be visible ASCII text",
            Self::Transport(_) => "cannot connect to the server",
        })
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Credentials => None,
            Self::Transport(error) => Some(error),
        }
    }
}

impl Connect {
    /// To a URL such as `http://127.0.0.1:50051`, or `https://...` for TLS.
    #[must_use]
    pub fn to(url: impl Into<String>) -> Self {
        let version = MetadataValue::from_static(PROTOCOL_VERSION);
        Self {
            url: url.into(),
            headers: Headers { version, authorization: None },
            authority_pem: None,
            within: Duration::from_secs(10),
        }
    }

    /// Sends `key` as a bearer token.
    ///
    /// # Errors
    /// [`ConnectError::Credentials`].
    pub fn bearer(mut self, key: &str) -> Result<Self, ConnectError> {
        let value = format!("Bearer {key}").parse::<MetadataValue<Ascii>>().ok();
        let mut value = value.ok_or(ConnectError::Credentials)?;
        value.set_sensitive(true);
        self.headers.authorization = Some(value);
        Ok(self)
    }

    /// Trusts servers whose certificate this authority signed. Needed for `https` URLs.
    #[must_use]
    pub fn authority_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority_pem = Some(pem.into());
        self
    }

    /// Connects, in at most ten seconds.
    ///
    /// # Errors
    /// [`ConnectError::Transport`].
    pub async fn connect(self) -> Result<Client, ConnectError> {
        let channel = self.endpoint()?.connect().await.map_err(ConnectError::Transport)?;
        Ok(self.over(channel))
    }

    /// Connects at the first call, and again whenever the connection is lost.
    ///
    /// # Errors
    /// [`ConnectError::Transport`] if the URL cannot be used.
    pub fn lazy(self) -> Result<Client, ConnectError> {
        let channel = self.endpoint()?.connect_lazy();
        Ok(self.over(channel))
    }

    fn endpoint(&self) -> Result<Endpoint, ConnectError> {
        let endpoint = Endpoint::from_shared(self.url.clone()).map_err(ConnectError::Transport)?;
        let endpoint = endpoint.connect_timeout(self.within).tcp_nodelay(true);
        let Some(pem) = &self.authority_pem else { return Ok(endpoint) };
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
        endpoint.tls_config(tls).map_err(ConnectError::Transport)
    }

    fn over(self, channel: Channel) -> Client {
        let service = InterceptedService::new(channel, self.headers);
        A2aServiceClient::new(service)
            .max_decoding_message_size(RECEIVE_BYTES_MAX)
            .max_encoding_message_size(RECEIVE_BYTES_MAX)
    }
}

impl Client {
    /// Connects to `http://host:port` without credentials.
    ///
    /// # Errors
    /// [`ConnectError::Transport`].
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Connect::to(url).connect().await
    }
}

/// A message of the user with one text and a fresh id (CL-13).
#[must_use]
pub fn text_message(text: impl Into<String>) -> v1::Message {
    v1::Message {
        message_id: Uuid::now_v7().to_string(),
        role: v1::Role::User.into(),
        parts: vec![v1::Part {
            content: Some(v1::part::Content::Text(text.into())),
            ..Default::default()
        }],
        ..Default::default()
    }
}

impl Interceptor for Headers {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let metadata = request.metadata_mut();
        // A caller's own value wins: a test may ask for another version.
        if metadata.get(A2A_VERSION).is_none() {
            metadata.insert(A2A_VERSION, self.version.clone());
        }
        if let Some(authorization) = &self.authorization {
            metadata.insert("authorization", authorization.clone());
        }
        Ok(request)
    }
}
