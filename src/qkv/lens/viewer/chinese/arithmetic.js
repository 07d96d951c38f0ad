// Texts of the arithmetic of a head, with the words of its steps (arithmetic/words.py), in Chinese, by their English.

const VIEW = {
  "Softmax": "softmax",
  "exp": "exp",
  "How a weight comes about": "一个权重是怎样算出来的",
  "Steps": "步骤",
  "Step {number}: {title}": "第 {number} 步：{title}",
  "{part}, layer {layer} of {layers}, head {head} of {heads}.": "{part}，第 {layer} 层（共 {layers} 层），第 {head} 个头（共 {heads} 个）。",
  "At position {position} the model reads “{token}”.": "在位置 {position}，模型读入“{token}”。",
  "The next token is “{next}”.": "下一个词元是“{next}”。",
  "Input": "输入",
  "Query, keys, values": "查询、键、值",
  "Scores": "得分",
  "Weights and their sum": "权重与加权和",
  "The rest of the layer": "这一层的其余部分",
  "Output": "输出",
  "input": "输入",
  "key": "键",
  "product": "乘积",
  "head {number}": "第 {number} 个头",
  "Show all {count} keys": "显示全部 {count} 个键",
  "The values, each with its weight, and their sum": "各个值乘以权重，以及它们的和",
  "Before the exponential the largest score is taken off all of them, which changes no weight and keeps the numbers small.":
    "取指数之前，先从所有得分中减去最大的一个；这不改变任何权重，只让数值不至于过大。",
  "The {count} products sum to the score; these are the largest ones.": "{count} 个乘积之和就是得分；这里列出最大的几个。",
  "hidden: its weight will be 0": "被遮住：它的权重将为 0",
  "visible: its score stays {score}": "可见：得分仍为 {score}",
  "← the text goes on with it": "← 文本接下来就是它",
  "The most probable tokens": "最可能的词元",
  "logit": "logit",
  "came in": "进入",
  "added": "加上",
  "added to q": "加到 q 上",
  "distance": "距离",
  "tree": "树",
  "segment": "段",
  "task": "任务",
  "content": "内容",
  "mean": "均值",
  "deviation": "标准差",
  "root mean square": "均方根",
  "units": "单元数",
  "units above 0": "大于 0 的单元数",
  "score": "得分",
  "masked": "掩码后",
  "weight": "权重",
};

const INPUT = {
  "The token becomes a vector": "词元变成向量",
  "Each token of the vocabulary has a learned vector.": "词表中的每个词元都有一个学得的向量。",
  "Scaled": "缩放",
  "The vector is multiplied by the square root of its width, which makes it as large as the layers expect.":
    "向量乘以其宽度的平方根，使它的大小符合各层的预期。",
  "The segment is added": "加上段向量",
  "A learned vector says which of the texts of a pair the token belongs to.": "一个学得的向量说明词元属于句对中的哪一句。",
  "The task is added": "加上任务向量",
  "A learned vector says which task the text belongs to.": "一个学得的向量说明文本属于哪项任务。",
  "The position is added": "加上位置编码",
  "A vector for the position is added; without it the model could not tell the order of the tokens.":
    "加上一个表示位置的向量；没有它，模型就分不清词元的先后。",
  "The position comes later": "位置稍后才加入",
  "Nothing about the position is added here: queries and keys will be rotated by angles that grow with it.":
    "这里不加入位置信息：之后查询和键会按位置旋转，位置越大，转角越大。",
  "Nothing about the position is added here: the distance between two tokens will change their score.":
    "这里不加入位置信息：之后两个词元的距离会改变它们的得分。",
  "No position": "没有位置",
  "This model is told nothing about the order of the tokens beyond which ones it may attend to.":
    "除了可以注意哪些词元之外，模型对词元的先后一无所知。",
  "The position is in the reading": "位置就在阅读之中",
  "A recurrent network reads one token after the other, so that its state knows the order.": "循环网络逐个读入词元，所以它的状态知道先后。",
  "The sum is normed": "对和做归一化",
  "Subtracting the mean and dividing by the deviation brings every token's vector to the same size.":
    "减去均值、除以标准差，使每个词元的向量大小一致。",
  "Projected": "投影",
  "A matrix brings the vector from the embeddings' width to that of the layers.": "一个矩阵把向量从词嵌入的宽度变到各层的宽度。",
  "The layers below": "下面的各层",
  "The layers before this one have changed the vector; this is what they pass on.": "前面的各层已经改变了向量；这是它们传上来的结果。",
  "Self-attention first": "先做自注意力",
  "The layer's self-attention has already mixed in the tokens that the decoder has read; this is the result.":
    "这一层的自注意力已经混入了解码器读过的词元；这是结果。",
  "Norm before attention": "注意力之前的层归一化",
  "The vector is brought to a standard size before it is used; the vector itself stays for the residual.":
    "向量在使用之前先化为标准大小；向量本身留给残差连接。",
};

const ATTENTION = {
  "Query": "查询",
  "A learned matrix turns the vector into a query: what this token looks for.": "一个学得的矩阵把向量变成查询：这个词元在找什么。",
  "Keys": "键",
  "Another matrix turns each token's vector into a key: what the token offers to be found by.":
    "另一个矩阵把每个词元的向量变成键：这个词元凭什么被找到。",
  "Keys of the source": "源文的键",
  "The encoder has read the source; a matrix turns its vector for each source token into a key.":
    "编码器已经读完源文；一个矩阵把它为每个源词元给出的向量变成键。",
  "Values": "值",
  "A third matrix turns each token's vector into a value: what it hands over when it is attended to.":
    "第三个矩阵把每个词元的向量变成值：它被注意时交出的内容。",
  "Values of the source": "源文的值",
  "A third matrix turns the encoder's vectors into values: what each source token hands over.":
    "第三个矩阵把编码器的向量变成值：每个源词元交出的内容。",
  "Positions rotate queries and keys": "位置使查询和键旋转",
  "Each pair of numbers is turned by an angle that grows with the position, so that a dot product depends on the distance.":
    "每一对数按随位置增大的角度旋转，于是点积取决于距离。",
  "Dot products": "点积",
  "The query is multiplied with each key: a large number means that the two fit together.": "查询与每个键相乘：数越大，说明两者越相配。",
  "Scores of the content": "内容得分",
  "The query and a learned vector u, the same for all tokens, are multiplied with each key.":
    "查询加上一个对所有词元都相同的学得向量 u，再与每个键相乘。",
  "Scores of the distance": "距离得分",
  "The query and a learned vector v are multiplied with a vector for the distance: here the positions enter.":
    "查询加上一个学得的向量 v，再与表示距离的向量相乘：位置在这里加入。",
  "Scores of the segment": "段得分",
  "The query and a learned vector w are multiplied with one of two vectors: same segment, or another one.":
    "查询加上一个学得的向量 w，再与两个向量之一相乘：同一段，或另一段。",
  "The scores are added": "得分相加",
  "A score is the sum of the three.": "得分是三者之和。",
  "Divided by √d": "除以 √d",
  "Sums over many numbers grow with their count; dividing by the square root of it keeps the softmax from saturating.":
    "许多数之和会随个数增大；除以个数的平方根，可以防止 softmax 饱和。",
  "The distance is subtracted": "减去距离",
  "Far tokens lose: the distance times a slope that belongs to the head is subtracted. Here the positions enter.":
    "远处的词元吃亏：要减去距离乘以这个头的斜率。位置在这里加入。",
  "A number for the distance is added": "加上一个表示距离的数",
  "A learned number for the head and the distance is added to each score. Here the positions enter.":
    "每个得分都加上一个由头和距离决定的学得的数。位置在这里加入。",
  "A vector for the distance is added to the keys": "给键加上距离向量",
  "The query also meets a learned vector for each distance, as if it were part of the key. Here the positions enter.":
    "查询还要与每个距离的学得向量相乘，仿佛它是键的一部分。位置在这里加入。",
  "Mask": "掩码",
  "Nothing is hidden here: the token may attend to all of these.": "这里没有遮住任何词元：它们都可以被注意。",
  "Tokens that come later are hidden: a model that writes must not see what it has yet to write.":
    "后面的词元被遮住：写作的模型不能看到还没写出的内容。",
  "s_j = −∞ where j > i": "s_j = −∞，当 j > i",
  "Some tokens are hidden from this one by the model's attention pattern.": "按照模型的注意力模式，有些词元对它是遮住的。",
  "s_j = −∞ where hidden": "s_j = −∞，在被遮住之处",
  "The exponentials of the scores, divided by their sum: positive weights that add up to 1.":
    "得分的指数，除以它们的和：得到正的权重，总和为 1。",
  "Weighted sum of the values": "值的加权和",
  "The head's result is the mean of the values, each with its weight.": "这个头的结果是各个值按权重的平均。",
  "Vectors for distances join the values": "距离向量加入值",
  "The weights also mix learned vectors for the distances, as if they were part of the values.":
    "权重同时混合表示距离的学得向量，仿佛它们是值的一部分。",
  "The heads are joined": "各个头拼接起来",
  "All heads of the layer do the same with their own matrices; here are all results.": "这一层所有的头用各自的矩阵做同样的事；这里是全部结果。",
  "A matrix mixes the heads' results to one vector of the layer's width.": "一个矩阵把各个头的结果混合成一个与层同宽的向量。",
};

const LAYER = {
  "Residual": "残差连接",
  "The result is added to what came in, so that nothing is lost.": "结果与进入的向量相加，这样什么也不会丢失。",
  "Norm": "层归一化",
  "The sum is brought to a standard size: mean 0 and deviation 1, then learned scales.": "把和化为标准大小：均值 0、标准差 1，再乘以学得的系数。",
  "Cross-attention next": "接着做交叉注意力",
  "The layer then attends to the source in the same way (part cross); this is the result.":
    "这一层随后以同样的方式注意源文（交叉注意力部分）；这是结果。",
  "Norm before feed-forward": "前馈网络之前的层归一化",
  "The vector is brought to a standard size again.": "向量再次化为标准大小。",
  "Feed-forward: the inner units": "前馈网络：内部单元",
  "A matrix and an activation turn the vector into many units, each of which looks for one pattern; some are active.":
    "一个矩阵和一个激活函数把向量变成许多单元，每个单元寻找一种模式；其中一些被激活。",
  "Two matrices make units and gates; the gates decide how much of each unit passes.": "两个矩阵分别产生单元和门；门决定每个单元通过多少。",
  "Feed-forward: the result": "前馈网络：结果",
  "A second matrix adds up what the active units contribute.": "第二个矩阵把被激活的单元的贡献加在一起。",
  "The result is added to what came in.": "结果与进入的向量相加。",
  "The sum is brought to a standard size.": "把和化为标准大小。",
  "Passed on": "传给下一层",
  "This vector is the input of the next layer.": "这个向量是下一层的输入。",
  "The last norm": "最后的层归一化",
  "After the last layer the vector is normed once more.": "最后一层之后，向量再做一次归一化。",
  "To the decoder": "交给解码器",
  "The encoder is done: the decoder's cross-attention makes keys and values of this vector.":
    "编码器已经完成：解码器的交叉注意力会用这个向量生成键和值。",
  "The output": "输出",
  "This is the model's vector for the token; whatever uses the model starts from it.": "这是模型给这个词元的向量；后续的使用都从它出发。",
  "Logits and probabilities": "logit 与概率",
  "The vector is multiplied with an output vector for each token of the vocabulary; a softmax makes probabilities.":
    "向量与词表中每个词元的输出向量相乘；softmax 把结果变成概率。",
  "A small network prepares the vector, which is multiplied with each token's vector; a softmax makes probabilities.":
    "一个小网络先处理向量，再与每个词元的向量相乘；softmax 把结果变成概率。",
};

const OTHERS = {
  "The last output is read, too": "同时读入上一步的输出",
  "Beside the token, the network reads its own last output, which knows where it attended.":
    "除了词元，网络还读入自己上一步的输出，其中包含它注意过哪里。",
  "The state is the query": "状态就是查询",
  "The recurrent layers update their state; the state of the top layer is the query.": "循环层更新状态；最上层的状态就是查询。",
  "A matrix turns the state into the query.": "一个矩阵把状态变成查询。",
  "The encoder's states are the keys as they are.": "编码器的状态直接作为键。",
  "A matrix turns the encoder's states into keys.": "一个矩阵把编码器的状态变成键。",
  "The encoder's states are the values as they are.": "编码器的状态直接作为值。",
  "Additive scores": "加性得分",
  "Query and key are added and squashed, and a learned vector v weighs the result.": "查询与键相加并压缩，再由学得的向量 v 加权。",
  "The state is multiplied with each state of the encoder.": "状态与编码器的每个状态相乘。",
  "General scores": "一般得分",
  "The state is multiplied with each projected state of the encoder.": "状态与编码器每个投影后的状态相乘。",
  "State and context are joined": "状态与上下文合并",
  "A matrix and tanh turn the state and the weighted sum into the output vector.": "一个矩阵和 tanh 把状态与加权和变成输出向量。",
  "Convolution over the last tokens": "对最近的词元做卷积",
  "A gated convolution mixes the token with the ones just before it.": "带门的卷积把这个词元与它前面的几个混合。",
  "The result is projected, and the embedding of the token that was read last is added.": "对结果做投影，再加上最近读入的词元的嵌入。",
  "The encoder's outputs are the keys.": "编码器的输出就是键。",
  "The encoder's outputs plus the embeddings of the tokens are the values.": "编码器的输出加上词元的嵌入就是值。",
  "A matrix brings the sum to the layer's width.": "一个矩阵把和变到层的宽度。",
  "Scaled by the length": "按长度缩放",
  "A mean over many tokens is small; the square root of their number makes up for it.": "对许多词元取平均会变小；乘以个数的平方根加以补偿。",
  "The result is added to the convolution's; the factor keeps the size.": "结果与卷积的结果相加；系数保持大小不变。",
  "What came into the layer is added, too.": "进入这一层的向量也加进来。",
  "A matrix brings the vector back to the embeddings' width.": "一个矩阵把向量变回词嵌入的宽度。",
};

export const ARITHMETIC = { ...VIEW, ...INPUT, ...ATTENTION, ...LAYER, ...OTHERS };
