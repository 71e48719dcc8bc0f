//! The OpenAPI document, made from the table of routes.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::guard::Access;
use crate::routes_table::{Action, Kind, Parameter, Place, ROUTES, Route};

/// Returns the document.
pub fn document() -> Value {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in ROUTES {
        paths.entry(route.path).or_default().insert(route.method.to_ascii_lowercase(), operation(route));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Lacquer's admin listener",
            "version": "1",
            "description": "Made from the table by which the server routes requests.",
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": {
                "type": "object", "required": ["error"], "properties": {"error": {"type": "string"}},
            }},
            "responses": {"Error": {
                "description": "Failure",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            }},
        },
        "paths": paths,
    })
}

fn operation(route: &Route) -> Value {
    let beside_body = route.parameters.iter().filter(|parameter| parameter.place != Place::Body);
    let mut responses = Map::new();
    let success = if route.action == Action::VclLoad { "201" } else { "200" };
    let content = json!({(route.media): {"schema": success_schema(route)}});
    responses.insert(success.to_owned(), json!({"description": "Success", "content": content}));
    if route.action == Action::Ready {
        let content = json!({(route.media): {"schema": {"type": "string"}}});
        responses.insert("503".to_owned(), json!({"description": "Not ready, and why", "content": content}));
    }
    for status in failures(route) {
        responses.insert((*status).to_owned(), json!({"$ref": "#/components/responses/Error"}));
    }
    responses.insert("default".to_owned(), json!({"$ref": "#/components/responses/Error"}));
    let mut operation = json!({
        "operationId": format!("{:?}", route.action), "summary": route.summary,
        "parameters": beside_body.map(parameter).collect::<Value>(), "responses": responses,
        "security": if route.access == Access::Token { json!([{"token": []}]) } else { json!([]) },
    });
    if route.has_body() {
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": body(route)}}});
    }
    operation
}

/// Returns the statuses of failures that a route may have.
fn failures(route: &Route) -> &'static [&'static str] {
    match (route.access, route.has_body()) {
        (Access::Open, _) => &["403"],
        (Access::Page, _) => &["403", "421"],
        (Access::Token, false) => &["400", "401", "403", "404", "409", "421", "503", "504"],
        (Access::Token, true) => {
            &["400", "401", "403", "404", "408", "409", "413", "415", "421", "503", "504"]
        }
    }
}

/// Returns the schema of a successful response.
fn success_schema(route: &Route) -> Value {
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let any = || json!({"type": "object"});
    match route.action {
        Action::Bans
        | Action::Vcls
        | Action::Params
        | Action::ParamShow
        | Action::ParamSet
        | Action::ParamReset
        | Action::Backends
        | Action::Storages
        | Action::Log => object(json!({"items": {"type": "array", "items": any()}})),
        Action::Purge | Action::Ban => {
            object(json!({"ban": {"type": "string"}, "removed": {"type": ["integer", "null"]}}))
        }
        Action::Tag => object(json!({"purged": {"type": "integer"}})),
        Action::VclLoad => object(json!({"name": {"type": "string"}, "messages": {"type": "string"}})),
        Action::VclUse | Action::VclDiscard | Action::BackendHealth => {
            object(json!({"messages": {"type": "string"}}))
        }
        Action::Why => object(json!({
            "request": {"type": "string"}, "status": {"type": ["integer", "null"]}, "outcome": {"type": "string"},
        })),
        Action::Counters => json!({"type": "object", "additionalProperties": object(json!({
            "value": {"type": "integer"}, "type": {"type": "string"}, "description": {"type": "string"},
        }))}),
        Action::Snapshot | Action::OpenApi => any(),
        Action::Page | Action::Alive | Action::Ready | Action::Metrics | Action::Events | Action::VclShow => {
            json!({"type": "string"})
        }
    }
}

fn parameter(parameter: &Parameter) -> Value {
    let place = if parameter.place == Place::Path { "path" } else { "query" };
    json!({
        "name": parameter.name, "in": place, "required": parameter.is_required, "description": parameter.text,
        "schema": schema(parameter.kind),
    })
}

fn body(route: &Route) -> Value {
    let all = || route.parameters.iter().filter(|parameter| parameter.place == Place::Body);
    let property = |parameter: &Parameter| {
        let mut schema = schema(parameter.kind);
        schema["description"] = parameter.text.into();
        (parameter.name.to_owned(), schema)
    };
    let mut schema = json!({
        "type": "object", "additionalProperties": false,
        "required": all().filter(|parameter| parameter.is_required).map(|parameter| parameter.name).collect::<Value>(),
        "properties": all().map(property).collect::<Map<String, Value>>(),
    });
    if route.action == Action::Purge {
        let only_url = json!({"required": ["url"], "properties": {"pattern": false, "host": false}});
        schema["oneOf"] = json!([only_url, {"required": ["pattern"], "properties": {"url": false}}]);
    }
    schema
}

fn schema(kind: Kind) -> Value {
    match kind {
        Kind::Text => json!({"type": "string"}),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Number => json!({"type": "integer", "minimum": 0}),
        Kind::Scalar => json!({"type": ["string", "number", "boolean"]}),
        Kind::Texts => json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// `UPDATE=1` writes the file.
    #[test]
    fn the_published_document_is_that_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let text = format!("{:#}\n", document());
        if std::env::var_os("UPDATE").is_some() {
            fs::write(path, &text).expect("the file can be written");
        }
        let published = fs::read_to_string(path).unwrap_or_default();
        assert!(
            published == text,
            "docs/openapi.json is old: UPDATE=1 cargo test -p lacquer-admin writes it"
        );
    }
}
