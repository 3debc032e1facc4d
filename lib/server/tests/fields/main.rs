//! Hash fields that expire. There are three parts: a table of requests, answers and events after Redis 7.4 and 8.0, because
//! the installed redis-server may lack these commands; a comparison with a model; and loads that could make clients wait.

mod hostile;
mod model;
mod ours;
mod table;
