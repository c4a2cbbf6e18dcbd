package main

func Example() {
	main()
	// Output:
	// loaded delay
	// x FP32 [2] [1.5 -2]
	// ids INT64 [2] [7 8]
	// labels BYTES [2] [cat dog]
	// boxes FP32 [1 0 4] []
	// scores FP32 [1 0] []
	// the stream has 40 results
}
