//! What a check says.

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing is wrong.
    Info,
    /// Works, but slower or more fragile than it could.
    Warn,
    /// Something will not work.
    Fail,
}

impl Level {
    /// Its name in the output: "ok", "info", "WARN", "FAIL".
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        }
    }
}

/// One line of the diagnosis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The check's name; stable.
    pub id: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What was seen, with the numbers.
    pub fact: String,
    /// Why it matters; may be empty where the fact says it.
    pub why: String,
    /// The command, or for what is set elsewhere the setting, that changes it; empty when there is nothing to do.
    pub remedy: String,
}

impl Finding {
    fn new(id: &'static str, level: Level, fact: String) -> Self {
        Self { id, level, fact, why: String::new(), remedy: String::new() }
    }
    /// All is well.
    #[must_use]
    pub fn ok(id: &'static str, fact: impl Into<String>) -> Self {
        Self::new(id, Level::Ok, fact.into())
    }
    /// Worth knowing.
    #[must_use]
    pub fn info(id: &'static str, fact: impl Into<String>) -> Self {
        Self::new(id, Level::Info, fact.into())
    }
    /// Slower or more fragile than it could be.
    #[must_use]
    pub fn warn(id: &'static str, fact: impl Into<String>) -> Self {
        Self::new(id, Level::Warn, fact.into())
    }
    /// Will not work.
    #[must_use]
    pub fn fail(id: &'static str, fact: impl Into<String>) -> Self {
        Self::new(id, Level::Fail, fact.into())
    }
    /// Says why it matters.
    #[must_use]
    pub fn why(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }
    /// Says what to do.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}
