// Package ssf reads what applications of Simple Server Framework are configured by: the file
// ssf_config.yaml, and the options of its command line.
//
// It owns their names and defaults. What they mean is known by those who use them. It must
// not know models or servers.
package ssf
