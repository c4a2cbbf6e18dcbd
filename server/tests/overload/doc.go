// Package overload tests that clients who ask for too much, send large inputs or read nothing do not hold up other
// clients.
package overload
