//! How messages become the bytes of a call: protobuf, with a small buffer to begin with.
//!
//! The usual codec takes 8 KiB for each answer before there is anything to say, which is most of
//! what an idle stream costs.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, EncodeBuf, Encoder};
use tonic_prost::ProstCodec;

/// What a buffer holds at first; it grows to what a message needs.
const BUFFER_BYTES: usize = 256;
/// After how many bytes what was encoded is handed on.
const YIELD_BYTES: usize = 32 * 1024;

/// Protobuf, encoded into a buffer that begins with 256 bytes.
#[derive(Debug, Clone)]
pub struct Codec<T, U> {
    of: PhantomData<(T, U)>,
}

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self { of: PhantomData }
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = Encode<T>;
    type Decoder = <ProstCodec<T, U> as tonic::codec::Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        Encode { of: PhantomData }
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::default())
    }
}

/// The encoding half of [`Codec`].
#[derive(Debug, Clone)]
pub struct Encode<T> {
    of: PhantomData<T>,
}

impl<T: Message> Encoder for Encode<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        // At once and not by doubling, so that a large message is not copied many times.
        buffer.reserve(item.encoded_len());
        item.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
    }
}
