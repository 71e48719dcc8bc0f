//! The parameters of a request, from its path, its query and its body.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::percent::decoded;
use crate::routes_table::{Kind, Place, Route};

/// The values of a request's parameters by name. They have the kinds that the route defines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(BTreeMap<&'static str, Value>);

impl Values {
    /// Reads the parameters of a route. `path` contains the parts of the path that its variables match.
    pub fn read(route: &Route, path: &[String], query: &str, body: &[u8]) -> Result<Values, String> {
        let mut path = path.iter();
        let query = parse_query(query)?;
        let object = if route.has_body() { parse_body(body)? } else { Map::new() };
        if let Some(name) = query.keys().chain(object.keys()).find(|name| !route.has_parameter(name)) {
            return Err(format!("there is no parameter {}", lacquer_inspect::page::short(name.as_bytes())));
        }
        let mut values = BTreeMap::new();
        for parameter in route.parameters {
            let found = match parameter.place {
                Place::Path => path.next().map(|text| Value::from(text.as_str())),
                Place::Query => query.get(parameter.name).map(|text| parameter.kind.of_text(text)),
                Place::Body => object.get(parameter.name).cloned(),
            };
            match found.filter(|value| !value.is_null()) {
                Some(value) if parameter.kind.accepts(&value) => {
                    let is_text = parameter.kind != Kind::Scalar || value.is_string();
                    values.insert(parameter.name, if is_text { value } else { value.to_string().into() });
                }
                Some(_) => return Err(format!("{} is not {}", parameter.name, parameter.kind.article())),
                None if parameter.is_required => return Err(format!("{} is missing", parameter.name)),
                None => {}
            }
        }
        Ok(Values(values))
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// Returns the value of a required parameter.
    pub fn required(&self, name: &str) -> &str {
        self.text(name).unwrap_or_default()
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(Value::as_u64)
    }

    pub fn list(&self, name: &str) -> Vec<&str> {
        self.0.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

impl Kind {
    /// Returns the value that a text of a query stands for.
    fn of_text(self, text: &str) -> Value {
        match self {
            Kind::Flag => match text {
                "1" | "true" | "" => true.into(),
                "0" | "false" => false.into(),
                _ => text.into(),
            },
            Kind::Number => text.parse::<u64>().map_or_else(|_| text.into(), Value::from),
            Kind::Text | Kind::Texts | Kind::Scalar => text.into(),
        }
    }

    fn accepts(self, value: &Value) -> bool {
        match self {
            Kind::Text => value.is_string(),
            Kind::Flag => value.is_boolean(),
            Kind::Number => value.is_u64(),
            Kind::Scalar => value.is_string() || value.is_number() || value.is_boolean(),
            Kind::Texts => {
                value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(Value::is_string))
            }
        }
    }

    fn article(self) -> &'static str {
        match self {
            Kind::Text => "a text",
            Kind::Flag => "true or false",
            Kind::Number => "a number",
            Kind::Scalar => "a text, a number, true or false",
            Kind::Texts => "a list of texts",
        }
    }
}

fn parse_body(body: &[u8]) -> Result<Map<String, Value>, String> {
    if body.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err("the body is not an object of JSON".to_owned()),
    }
}

fn parse_query(query: &str) -> Result<BTreeMap<String, String>, String> {
    let mut all = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (decoded(name, true), decoded(value, true)) else {
            return Err("the query is not percent-encoded UTF-8".to_owned());
        };
        if all.insert(name, value).is_some() {
            return Err("a parameter occurs twice".to_owned());
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes_table::{Action, find};

    fn read(method: &str, path: &str, query: &str, body: &str) -> Result<Values, String> {
        let found = find(method, path).expect("a route");
        Values::read(found.route, &found.variables, query, body.as_bytes())
    }

    #[test]
    fn values_have_their_kinds() {
        let values =
            read("POST", "/api/v1/tag", "", r#"{"tags": ["a", "b"], "soft": true}"#).expect("correct");
        assert_eq!((values.list("tags"), values.is_set("soft")), (vec!["a", "b"], true));
        let values =
            read("GET", "/api/v1/log", "status=5xx&url=%2Fa+b&limit=7&misses=1", "").expect("correct");
        assert_eq!(
            (values.text("url"), values.number("limit"), values.is_set("misses")),
            (Some("/a b"), Some(7), true)
        );
        for (body, text) in [("7", "7"), ("7.5", "7.5"), ("true", "true"), ("\"7s\"", "7s")] {
            let values = read("PUT", "/api/v1/params/default_ttl", "", &format!("{{\"value\": {body}}}"));
            assert_eq!(values.expect("correct").required("value"), text);
        }
        let found = find("DELETE", "/api/v1/vcl/a%2Fb").expect("a route");
        assert_eq!((found.route.action, found.variables), (Action::VclDiscard, vec!["a/b".to_owned()]));
    }

    #[test]
    fn wrong_values_are_refused() {
        for (method, path, query, body, why) in [
            ("POST", "/api/v1/tag", "", r#"{"tags": []}"#, "a list"),
            ("POST", "/api/v1/tag", "", r#"{"tags": [1]}"#, "a list"),
            ("POST", "/api/v1/tag", "", r#"{"tags": "a"}"#, "a list"),
            ("POST", "/api/v1/tag", "", "", "missing"),
            ("POST", "/api/v1/tag", "", "[]", "object"),
            ("POST", "/api/v1/tag", "", "{", "object"),
            ("POST", "/api/v1/tag", "", r#"{"tags": ["a"], "all": true}"#, "no parameter all"),
            ("POST", "/api/v1/tag", "tags=a", "{}", "missing"),
            ("PUT", "/api/v1/params/default_ttl", "", r#"{"value": [7]}"#, "a text, a number"),
            ("GET", "/api/v1/log", "limit=x", "", "a number"),
            ("GET", "/api/v1/log", "limit=1&limit=2", "", "twice"),
            ("GET", "/api/v1/log", "url=%zz", "", "percent"),
            ("GET", "/api/v1/log", "url=%ff", "", "percent"),
            ("GET", "/api/v1/log", "misses=maybe", "", "true or false"),
        ] {
            let found = read(method, path, query, body);
            assert!(found.as_ref().is_err_and(|text| text.contains(why)), "{path} {query} {body}: {found:?}");
        }
    }
}
