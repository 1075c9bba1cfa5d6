//! Resident payload, held against mincore.
