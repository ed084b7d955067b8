//! From a path to an operation, as the `google.api.http` options of the contract say.

use std::sync::LazyLock;

use http::Method;
use percent_encoding::percent_decode_str;
use prost_reflect::{DynamicMessage, MethodDescriptor};

use crate::bindings::operation::Operation;

/// One way in which the contract maps HTTP to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Route {
    operation: Operation,
    verb: Method,
    segments: Vec<Segment>,
    /// What follows the last colon of the path, as in `:cancel`.
    action: Option<String>,
    /// Whether the request message is the body.
    has_body: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    /// These letters.
    Fixed(String),
    /// Any one segment: the value of this field, by its proto name.
    Field(String),
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) operation: Operation,
    /// Fields that the path holds, by their proto names.
    pub(super) fields: Vec<(&'static str, String)>,
    /// Whether the request message is the body, and not the query.
    pub(super) has_body: bool,
}

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// To an operation.
    Target(Target),
    /// To operations that other methods of HTTP ask for.
    Other(Vec<Method>),
    /// Nowhere.
    Nothing,
}

/// Every route: first the primary ones of all operations, then those with a tenant in front, so
/// that a tenant never hides an operation (TEN-08).
static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let mut primary = Vec::new();
    let mut additional = Vec::new();
    for (operation, method) in Operation::methods() {
        let Some(rule) = http_rule(method) else { continue };
        primary.extend(Route::of_rule(*operation, &rule));
        let more = rule.get_field_by_name("additional_bindings");
        for rule in more.iter().filter_map(|more| more.as_list()).flatten() {
            additional.extend(rule.as_message().map(|rule| Route::of_rule(*operation, rule)));
        }
    }
    primary.extend(additional.into_iter().flatten());
    // The text of the protocol says POST for what its proto says GET (AMB-03).
    let posted: Vec<_> = primary
        .iter()
        .filter(|route| route.operation == Operation::SubscribeToTask)
        .map(|route| Route { verb: Method::POST, has_body: true, ..route.clone() })
        .collect();
    primary.extend(posted);
    primary
});

fn http_rule(method: &MethodDescriptor) -> Option<DynamicMessage> {
    let extension = method.parent_pool().get_extension_by_name("google.api.http")?;
    method.options().get_extension(&extension).as_message().cloned()
}

impl Route {
    fn of_rule(operation: Operation, rule: &DynamicMessage) -> Option<Self> {
        let text = |name: &str| {
            let value = rule.get_field_by_name(name)?;
            value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let verbs = [("get", Method::GET), ("post", Method::POST), ("delete", Method::DELETE)];
        let (verb, template) =
            verbs.into_iter().find_map(|(name, verb)| Some((verb, text(name)?)))?;
        let (segments, action) = parse(&template);
        Some(Self { operation, verb, segments, action, has_body: text("body").is_some() })
    }

    /// The fields that the path holds, if it is one of this route's.
    fn fields(&'static self, path: &Path) -> Option<Vec<(&'static str, String)>> {
        let segments = match (&self.action, &path.action) {
            (None, _) => &path.segments,
            (Some(action), Some((segments, asked))) if action == asked => segments,
            (Some(_), _) => return None,
        };
        if self.segments.len() != segments.len() {
            return None;
        }
        let mut fields = Vec::new();
        for (wanted, found) in self.segments.iter().zip(segments) {
            match wanted {
                Segment::Fixed(text) if text == found => {}
                Segment::Field(name) if !found.is_empty() => {
                    fields.push((name.as_str(), found.clone()));
                }
                Segment::Fixed(_) | Segment::Field(_) => return None,
            }
        }
        Some(fields)
    }
}

/// A template such as `/{tenant}/tasks/{id=*}:cancel`. Every variable of the contract is one
/// whole segment.
fn parse(template: &str) -> (Vec<Segment>, Option<String>) {
    let after_last_field = template.rfind('}').map_or(0, |at| at + 1);
    let tail = template.get(after_last_field..).unwrap_or_default();
    let (path, action) = match tail.rsplit_once(':') {
        Some((_, action)) => {
            let length = template.len() - action.len() - 1;
            (template.get(..length).unwrap_or_default(), Some(action.to_owned()))
        }
        None => (template, None),
    };
    let segment = |text: &str| match text.strip_prefix('{').and_then(|t| t.strip_suffix('}')) {
        Some(field) => Segment::Field(field.trim_end_matches("=*").to_owned()),
        None => Segment::Fixed(text.to_owned()),
    };
    (path.trim_start_matches('/').split('/').map(segment).collect(), action)
}

/// The path of a request, decoded.
struct Path {
    segments: Vec<String>,
    /// The same, when what follows the last colon of the last segment is taken as an action.
    action: Option<(Vec<String>, String)>,
}

impl Path {
    /// Segments are told apart before they are decoded, and the action after (REST-14). Empty
    /// segments at either end, as a doubled or a trailing slash makes them, do not count.
    fn decode(path: &str) -> Option<Self> {
        let inside = path.trim_start_matches('/');
        let inside = inside.strip_suffix('/').unwrap_or(inside);
        let decode = |text| percent_decode_str(text).decode_utf8().ok().map(String::from);
        let segments: Vec<_> = inside.split('/').map(decode).collect::<Option<_>>()?;
        let action = segments.split_last().and_then(|(last, before)| {
            let (last, action) = last.rsplit_once(':')?;
            let mut segments = before.to_vec();
            segments.push(last.to_owned());
            Some((segments, action.to_owned()))
        });
        Some(Self { segments, action })
    }
}

/// Where `path` leads with `verb`. HEAD asks for what GET answers, without its body.
pub(super) fn find(verb: &Method, path: &str) -> Found {
    let Some(path) = Path::decode(path) else { return Found::Nothing };
    let wanted = if verb == Method::HEAD { &Method::GET } else { verb };
    let mut others = Vec::new();
    // What looks like an action is one; any other colon is part of an id.
    for has_action in [true, false] {
        for route in ROUTES.iter().filter(|route| route.action.is_some() == has_action) {
            let Some(fields) = route.fields(&path) else { continue };
            let answers = verb != Method::HEAD || !route.operation.streams();
            if route.verb == wanted && answers {
                let Route { operation, has_body, .. } = *route;
                return Found::Target(Target { operation, fields, has_body });
            }
            others.push(route.verb.clone());
            if route.verb == Method::GET && !route.operation.streams() {
                others.push(Method::HEAD);
            }
        }
        if !others.is_empty() {
            others.dedup();
            return Found::Other(others);
        }
    }
    Found::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(verb: &Method, path: &str) -> Option<(Operation, String)> {
        match find(verb, path) {
            Found::Target(target) => {
                let fields: Vec<_> =
                    target.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
                Some((target.operation, fields.join(" ")))
            }
            Found::Other(_) | Found::Nothing => None,
        }
    }

    #[test]
    fn every_route_of_the_contract_is_there() {
        assert_eq!(ROUTES.len(), 2 * 11 + 2);
        let (get, post) = (Method::GET, Method::POST);
        for (verb, path, operation, fields) in [
            (&post, "/message:send", Operation::SendMessage, ""),
            (&post, "/message:stream", Operation::SendStreamingMessage, ""),
            (&get, "/tasks/1", Operation::GetTask, "id=1"),
            (&get, "/tasks", Operation::ListTasks, ""),
            (&post, "/tasks/1:cancel", Operation::CancelTask, "id=1"),
            (&get, "/tasks/1:subscribe", Operation::SubscribeToTask, "id=1"),
            (&post, "/tasks/1:subscribe", Operation::SubscribeToTask, "id=1"),
            (&post, "/tasks/1/pushNotificationConfigs", Operation::CreatePushConfig, "task_id=1"),
            (&get, "/tasks/1/pushNotificationConfigs", Operation::ListPushConfigs, "task_id=1"),
            (
                &get,
                "/tasks/1/pushNotificationConfigs/2",
                Operation::GetPushConfig,
                "task_id=1 id=2",
            ),
            (
                &Method::DELETE,
                "/tasks/1/pushNotificationConfigs/2",
                Operation::DeletePushConfig,
                "task_id=1 id=2",
            ),
            (&get, "/extendedAgentCard", Operation::GetExtendedAgentCard, ""),
        ] {
            assert_eq!(target(verb, path), Some((operation, fields.to_owned())), "{path}");
            let with_tenant = format!("tenant=blue {fields}");
            let found = target(verb, &format!("/blue{path}"));
            assert_eq!(found, Some((operation, with_tenant.trim_end().to_owned())), "/blue{path}");
        }
    }

    #[test]
    fn segments_are_decoded_and_actions_come_last() {
        let (get, post) = (Method::GET, Method::POST);
        for (verb, path, operation, fields) in [
            (&post, "/tasks/a%2Fb%3Acancel", Operation::CancelTask, "id=a/b"),
            (&post, "/tasks/a:b:cancel", Operation::CancelTask, "id=a:b"),
            (&get, "/tasks/a:b", Operation::GetTask, "id=a:b"),
            (&get, "/tasks/tasks", Operation::GetTask, "id=tasks"),
            (&get, "/tasks/", Operation::ListTasks, ""),
            (&get, "//tasks", Operation::ListTasks, ""),
            (&post, "/message%3Asend", Operation::SendMessage, ""),
            (&post, "/a%20b:c/message:send", Operation::SendMessage, "tenant=a b:c"),
        ] {
            assert_eq!(target(verb, path), Some((operation, fields.to_owned())), "{path}");
        }
        for path in ["/", "", "/message", "/tasks/1/2", "/x/y/tasks", "/tasks/%FF", "/message:x"] {
            assert_eq!(find(&get, path), Found::Nothing, "{path}");
        }
    }

    #[test]
    fn a_known_path_says_which_methods_it_takes() {
        let other = |verb: &Method, path: &str| match find(verb, path) {
            Found::Other(verbs) => verbs,
            found @ (Found::Target(_) | Found::Nothing) => panic!("{found:?}"),
        };
        assert_eq!(other(&Method::DELETE, "/tasks"), [Method::GET, Method::HEAD]);
        assert_eq!(other(&Method::GET, "/message:send"), [Method::POST]);
        assert_eq!(other(&Method::HEAD, "/message:send"), [Method::POST]);
        let both = other(&Method::PUT, "/tasks/1/pushNotificationConfigs");
        assert_eq!(both, [Method::POST, Method::GET, Method::HEAD]);
        let subscribe = other(&Method::PUT, "/tasks/1:subscribe");
        assert_eq!(subscribe, [Method::GET, Method::POST]);
        assert_eq!(other(&Method::GET, "/tasks/1:cancel"), [Method::POST]);
        assert!(matches!(find(&Method::HEAD, "/tasks/1"), Found::Target(_)));
    }
}
