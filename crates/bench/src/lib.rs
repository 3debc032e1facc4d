//! Workloads, drivers, peers behind adapters, measurement and reports.
