// Package streams tests streams of pictures and sound: server streams, folders, pulls, regions and windows.
package streams
