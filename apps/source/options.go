package source

// EnvToken is the variable with the password or token for HTTP.
const EnvToken = "MILLRACE_GIT_TOKEN"
