//! What a schema cannot be used for.

/// Why a schema is not accepted. Nothing of a schema is silently ignored but what the API server ignores too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A keyword or format that this crate does not implement.
    #[error("{path}: not supported")]
    Unsupported {
        /// Where in the schema: `openAPIV3Schema.properties[spec].format`.
        path: String,
    },
    /// What the API server would refuse as a schema.
    #[error("{path}: {problem}")]
    Invalid {
        /// Where in the schema.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A CEL rule or message that does not compile.
    #[error("{path}: {problem}: {rule}")]
    Rule {
        /// Where in the schema.
        path: String,
        /// The expression.
        rule: String,
        /// What is wrong with it, such as a function that is not known.
        problem: String,
    },
}

impl SchemaError {
    pub(crate) fn invalid(path: &str, problem: &str) -> Self {
        Self::Invalid { path: path.to_owned(), problem: problem.to_owned() }
    }
}
