//! A director of the old text, and the object that it becomes.

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

    /// Returns whether values of the request select the backend.
    pub fn depends_on_request(&self) -> bool {
        matches!(self.kind.as_str(), "hash" | "client")
    }

    /// Returns the expression that selects a backend.
    pub fn choice(&self) -> String {
        let name = &self.object;
        match self.kind.as_str() {
            "client" => format!("{name}.backend(client.identity)"),
            "hash" => format!("{name}.backend(req.http.host + req.url)"),
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
