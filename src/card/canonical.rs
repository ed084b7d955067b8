//! The bytes of a card that signatures cover: RFC 8785 over the card without its signatures
//! (SIGN-02 to SIGN-06).
//!
//! Readers of the protocol differ in what they leave out before that. The protocol keeps required
//! members also when they are empty, and messages that hold nothing; several SDKs drop every empty
//! text, list and object, at all levels (AMB-20). Most cards are the same bytes either way. One that
//! names a security scheme without scopes is not, since `{"bearer": {}}` is empty.

use serde_json::Value;

use crate::card::json;
use crate::contract::v1;

/// What is left out before the bytes are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As the protocol says.
    Protocol,
    /// Every empty text, list and object, as several SDKs do.
    WithoutEmpties,
    /// Nothing: the JSON as it was read. It is never signed here, but may have been elsewhere.
    AsRead,
}

impl Form {
    /// The form's name, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Protocol => "as the protocol says",
            Self::WithoutEmpties => "without all empty members",
            Self::AsRead => "as it was read",
        }
    }
}

/// What a signature over `card` covers, but for [`Form::AsRead`], which has no card.
///
/// # Errors
/// When the card holds what JSON cannot say.
pub fn payload(card: &v1::AgentCard, form: Form) -> Result<Vec<u8>, String> {
    let unsigned = v1::AgentCard { signatures: Vec::new(), ..card.clone() };
    let value = json::to_value(&unsigned)?;
    match form {
        Form::Protocol | Form::AsRead => bytes(&value),
        Form::WithoutEmpties => {
            bytes(&without_empties(value).unwrap_or_else(|| Value::Object(serde_json::Map::new())))
        }
    }
}

/// What a signature over a card's JSON covers if nothing was left out.
///
/// # Errors
/// When a number cannot be written.
pub fn payload_as_read(card: &Value) -> Result<Vec<u8>, String> {
    let mut card = card.clone();
    if let Value::Object(members) = &mut card {
        members.remove("signatures");
    }
    bytes(&card)
}

fn bytes(value: &Value) -> Result<Vec<u8>, String> {
    serde_json_canonicalizer::to_vec(value).map_err(|error| error.to_string())
}

fn without_empties(value: Value) -> Option<Value> {
    match value {
        Value::Object(members) => {
            let kept: serde_json::Map<_, _> = members
                .into_iter()
                .filter_map(|(name, value)| Some((name, without_empties(value)?)))
                .collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) => {
            let kept: Vec<_> = items.into_iter().filter_map(without_empties).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        Value::String(text) => (!text.is_empty()).then_some(Value::String(text)),
        // The SDKs drop these too: they stand for what has no value.
        Value::Null => None,
        Value::Bool(_) | Value::Number(_) => Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn members_are_in_order_and_defaults_are_left_out_but_for_set_ones() {
        let card = v1::AgentCard {
            name: "b\u{fc}ro \u{20ac}".to_owned(),
            version: "1".to_owned(),
            capabilities: Some(v1::AgentCapabilities {
                streaming: Some(false),
                extensions: vec![v1::AgentExtension {
                    uri: "a:b".to_owned(),
                    ..Default::default()
                }],
                ..Default::default()
            }),
            signatures: vec![v1::AgentCardSignature::default()],
            ..Default::default()
        };
        let without = text(payload(&card, Form::WithoutEmpties).unwrap());
        let expected = r#"{"capabilities":{"extensions":[{"uri":"a:b"}],"streaming":false},"name":"büro €","version":"1"}"#;
        assert_eq!(without, expected);
    }

    #[test]
    fn a_scheme_without_scopes_is_what_the_forms_differ_in() {
        let mut card = v1::AgentCard { name: "a".to_owned(), ..Default::default() };
        let mut requirement = v1::SecurityRequirement::default();
        requirement.schemes.insert("bearer".to_owned(), v1::StringList::default());
        card.security_requirements.push(requirement);
        let of = |form| text(payload(&card, form).unwrap());
        assert!(
            of(Form::Protocol).contains(r#""securityRequirements":[{"schemes":{"bearer":{}}}]"#)
        );
        assert_eq!(of(Form::WithoutEmpties), r#"{"name":"a"}"#);
    }

    #[test]
    fn numbers_and_names_are_ordered_and_written_as_rfc_8785_says() {
        let value: Value = serde_json::from_str(
            r#"{"signatures":[],"\u20ac":1,"\r":1e21,"1":0.000001,"\ud83d\ude00":1e-7,"ö":-0.0,"b":[333333333.33333329,4.50,2e-3,null,"\u000f\n\"<"]}"#,
        )
        .unwrap();
        // By UTF-16, as the RFC's own example sorts them.
        let expected = "{\"\\r\":1e+21,\"1\":0.000001,\"b\":[333333333.3333333,4.5,0.002,null,\
                        \"\\u000f\\n\\\"<\"],\"\u{f6}\":0,\"\u{20ac}\":1,\"\u{1f600}\":1e-7}";
        assert_eq!(text(payload_as_read(&value).unwrap()), expected);
    }
}
