// Package store is the ledger: what was received, what became of it, and what is still to be done, in one bbolt file.
//
// The guarantee: whatever a method reports as done is on disk, and stays readable after a crash at any instant. An event's
// id and the due time of its receipt are written in one transaction, so a repetition is suppressed exactly when the work
// for it is on record. Writers share commits; readers never hold a transaction longer than a page of rows, because one
// idle reader stops every writer once the file must grow. Cost does not grow with history: every question is answered from
// an index or a counter that changes in the same transaction as the rows it speaks of.
//
// A damaged file is reported as *DamagedError and left as it is. Nothing else opens the file, and whoever opens it holds
// the Lock beside it.
package store
