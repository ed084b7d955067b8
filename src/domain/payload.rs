//! What a payload may hold: the rules for messages, parts and free-form values that hold for
//! clients and agents alike.
//!
//! What JSON cannot say is refused on every binding, so that a task which one binding stored can
//! be read through all of them.

use crate::contract::v1::{self, part::Content};
use crate::contract::wkt::{Kind, Struct, Value};
use crate::domain::Violation;
use crate::domain::ids::ID_BYTES_MAX;

/// The most violations that one answer names; a request can hold any number of them.
const VIOLATIONS_MAX: usize = 16;

/// Collects everything that is wrong with a request or with an agent's report.
#[derive(Debug)]
pub struct Checker {
    nesting: usize,
    violations: Vec<Violation>,
}

impl Checker {
    /// A checker that refuses values nested deeper than `nesting`.
    #[must_use]
    pub fn new(nesting: usize) -> Self {
        Self { nesting, violations: Vec::new() }
    }

    /// Notes that `field` is wrong.
    pub fn refuse(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation::new(field, problem));
        }
    }

    /// Keeps what is right of `result` and notes what is wrong.
    pub fn keep<T>(&mut self, result: Result<T, Violation>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(violation) => {
                self.refuse(violation.field, violation.problem);
                None
            }
        }
    }

    /// Parts are there, and each holds exactly one content that JSON can say (SEND-12).
    pub fn parts(&mut self, field: &str, parts: &[v1::Part]) {
        if parts.is_empty() {
            self.refuse(field, "must hold at least one part");
        }
        for (n, part) in parts.iter().enumerate() {
            self.part(&format!("{field}[{n}]"), part);
        }
    }

    fn part(&mut self, field: &str, part: &v1::Part) {
        match &part.content {
            None => self.refuse(field, "must hold one of text, raw, url or data"),
            Some(Content::Url(url)) if url.is_empty() => {
                self.refuse(format!("{field}.url"), "must not be empty");
            }
            Some(Content::Data(value)) => {
                if let Some(problem) = value_problem(value, 0, self.nesting) {
                    self.refuse(format!("{field}.data"), problem);
                }
            }
            Some(Content::Text(_) | Content::Raw(_) | Content::Url(_)) => {}
        }
        self.text(&format!("{field}.media_type"), &part.media_type);
        self.metadata(&format!("{field}.metadata"), part.metadata.as_ref());
    }

    /// Metadata holds only what JSON can say.
    pub fn metadata(&mut self, field: &str, metadata: Option<&Struct>) {
        if let Some(problem) = metadata.and_then(|m| struct_problem(m, 0, self.nesting)) {
            self.refuse(field, problem);
        }
    }

    /// A short text: at most 256 bytes without control characters, possibly empty.
    pub fn text(&mut self, field: &str, text: &str) {
        if text.len() > ID_BYTES_MAX {
            let problem = format!("must have at most {ID_BYTES_MAX} bytes, has {}", text.len());
            self.refuse(field, problem);
        } else if text.chars().any(char::is_control) {
            self.refuse(field, "must not hold control characters");
        }
    }

    /// Something of `size` encoded bytes may have `max`; `advice` says what to do instead.
    pub fn size(&mut self, field: &str, size: usize, max: usize, advice: &str) {
        if size > max {
            self.refuse(field, format!("must have at most {max} bytes, has {size}; {advice}"));
        }
    }

    /// All that is wrong.
    ///
    /// # Errors
    /// The violations, unless there is none.
    pub fn finish(self) -> Result<(), Vec<Violation>> {
        if self.violations.is_empty() { Ok(()) } else { Err(self.violations) }
    }
}

/// What JSON could not say about `value`. `depth` counts the objects and arrays around it.
fn value_problem(value: &Value, depth: usize, max: usize) -> Option<String> {
    match &value.kind {
        None => Some("holds a value without a kind; null is a kind of its own".to_owned()),
        Some(Kind::NullValue(0) | Kind::StringValue(_) | Kind::BoolValue(_)) => None,
        Some(Kind::NullValue(n)) => Some(format!("holds the unknown null value {n}")),
        Some(Kind::NumberValue(number)) => (!number.is_finite())
            .then(|| "holds a number that is not finite, which JSON cannot say".to_owned()),
        Some(Kind::StructValue(object)) => struct_problem(object, depth, max),
        Some(Kind::ListValue(list)) => too_deep(depth + 1, max)
            .or_else(|| list.values.iter().find_map(|value| value_problem(value, depth + 1, max))),
    }
}

fn struct_problem(object: &Struct, depth: usize, max: usize) -> Option<String> {
    too_deep(depth + 1, max)
        .or_else(|| object.fields.values().find_map(|value| value_problem(value, depth + 1, max)))
}

fn too_deep(depth: usize, max: usize) -> Option<String> {
    (depth > max).then(|| format!("is nested deeper than {max} objects and arrays"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::wkt::ListValue;

    fn problems(part: v1::Part) -> Vec<Violation> {
        let mut checker = Checker::new(30);
        checker.parts("message.parts", &[part]);
        checker.finish().err().unwrap_or_default()
    }

    fn data(kind: Option<Kind>) -> v1::Part {
        v1::Part { content: Some(Content::Data(Value { kind })), ..Default::default() }
    }

    fn lists(depth: usize) -> Option<Kind> {
        let mut kind = Kind::BoolValue(true);
        for _ in 0..depth {
            kind = Kind::ListValue(ListValue { values: vec![Value { kind: Some(kind) }] });
        }
        Some(kind)
    }

    #[test]
    fn what_json_cannot_say_is_refused_by_its_path() {
        for kind in [
            None,
            Some(Kind::NullValue(1)),
            Some(Kind::NumberValue(f64::NAN)),
            Some(Kind::NumberValue(f64::NEG_INFINITY)),
            lists(31),
        ] {
            let found = problems(data(kind));
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].field, "message.parts[0].data");
        }
        for kind in [Some(Kind::NullValue(0)), Some(Kind::NumberValue(1e308)), lists(30)] {
            assert_eq!(problems(data(kind)), []);
        }
    }

    #[test]
    fn an_answer_names_a_bounded_number_of_faults() {
        let mut checker = Checker::new(30);
        checker.parts("message.parts", &vec![v1::Part::default(); 1000]);
        assert_eq!(checker.finish().unwrap_err().len(), VIOLATIONS_MAX);
    }
}
