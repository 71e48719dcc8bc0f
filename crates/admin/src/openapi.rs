//! The OpenAPI document, made from the table of routes.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::guard::Access;
use crate::routes_table::{Kind, Parameter, Place, ROUTES, Route};

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
        },
        "paths": paths,
    })
}

fn operation(route: &Route) -> Value {
    let beside_body = route.parameters.iter().filter(|parameter| parameter.place != Place::Body);
    let mut responses = Map::new();
    responses.insert("200".to_owned(), json!({"description": "Success", "content": {(route.media): {}}}));
    let failure = json!({
        "description": "Failure",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    });
    responses.insert("default".to_owned(), failure);
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
    json!({
        "type": "object", "additionalProperties": false,
        "required": all().filter(|parameter| parameter.is_required).map(|parameter| parameter.name).collect::<Value>(),
        "properties": all().map(property).collect::<Map<String, Value>>(),
    })
}

fn schema(kind: Kind) -> Value {
    match kind {
        Kind::Text => json!({"type": "string"}),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Number => json!({"type": "integer", "minimum": 0}),
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
