//! The words by which transactions that use the same record or index meet, with the steps whose order decides. They do
//! not depend on rows and maps, so loom can check them: each file has its models.

pub(crate) mod head;
pub(crate) mod set;
pub(crate) mod stamps;
