// Package access knows the clients of a server and what each client may do: principals, roles, models, accounts
// and quotas, and credentials with their end (keys, users, passwords, OpenID tokens, client certificates,
// sessions). Package access owns the files of keys and users. Package access must not know protocols, models
// or the gate: adapters read the credentials of a request.
package access
