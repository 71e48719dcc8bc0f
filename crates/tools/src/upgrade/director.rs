//! A director of the old text, and the object that it becomes.

/// Directors chose when the fetch began. Now they choose where `req.backend_hint` is set.
pub const EARLY_CHOICE: &str = "repeat this after changes of the values that select the backend";

/// A director of the old text.
#[derive(Debug, Default)]
pub struct Director {
    pub kind: String,
    /// The name of the object.
    pub object: String,
    /// Its backends and their weights.
    pub members: Vec<(String, String)>,
}

impl Director {
    pub fn is_weighted(&self) -> bool {
        matches!(self.kind.as_str(), "random" | "hash" | "client")
    }

    /// Returns the variables that select the backend, in lower case.
    pub fn selectors(&self) -> &'static [&'static str] {
        match self.kind.as_str() {
            "client" => &["client.identity"],
            "hash" => &["req.http.host", "req.url"],
            _ => &[],
        }
    }

    /// Returns the expression that selects a backend, on the client's or the backend's side.
    pub fn choice(&self, is_backend: bool) -> String {
        let name = &self.object;
        let req = if is_backend { "bereq" } else { "req" };
        match self.kind.as_str() {
            "client" => format!("{name}.backend(client.identity)"),
            "hash" => format!("{name}.backend({req}.http.host + {req}.url)"),
            _ => format!("{name}.backend()"),
        }
    }

    pub fn module_type(&self) -> Option<&'static str> {
        Some(match self.kind.as_str() {
            "round-robin" | "dns" => "round_robin",
            "random" => "random",
            "hash" | "client" => "hash",
            "fallback" => "fallback",
            _ => return None,
        })
    }
}
